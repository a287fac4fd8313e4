//! A flow graph as text, drawn as in Figure 7 of ATraPos: boxes from left to right by phase, arrows with the keys they
//! stand for, synchronization points marked.
//!
//! Owns: the positions of boxes and arrows. Never: omits a part of the graph; facts that an arrow cannot show are
//! listed below.
//!
//! Arrows between neighbouring phases have a track of their own in the gap between them, unless they are straight;
//! those over more than one phase pass below all boxes.

use std::collections::BTreeMap;

use atrapos::RecordedFlow;

use super::{counted, repeats};

const NORTH: u8 = 1;
const EAST: u8 = 2;
const SOUTH: u8 = 4;
const WEST: u8 = 8;

/// A drawing that grows: letters replace lines.
#[derive(Default)]
struct Canvas {
    lines: BTreeMap<(usize, usize), u8>,
    letters: BTreeMap<(usize, usize), char>,
}

impl Canvas {
    fn write(&mut self, (y, x): (usize, usize), text: &str) {
        for (at, letter) in text.chars().enumerate() {
            self.letters.insert((y, x + at), letter);
        }
    }

    fn horizontal(&mut self, y: usize, x: usize, to: usize) {
        for at in x.min(to)..x.max(to) {
            *self.lines.entry((y, at)).or_default() |= EAST;
            *self.lines.entry((y, at + 1)).or_default() |= WEST;
        }
    }

    fn vertical(&mut self, x: usize, y: usize, to: usize) {
        for at in y.min(to)..y.max(to) {
            *self.lines.entry((at, x)).or_default() |= SOUTH;
            *self.lines.entry((at + 1, x)).or_default() |= NORTH;
        }
    }

    fn rectangle(&mut self, (y, x): (usize, usize), height: usize, width: usize) {
        for side in [y, y + height - 1] {
            self.horizontal(side, x, x + width - 1);
        }
        for side in [x, x + width - 1] {
            self.vertical(side, y, y + height - 1);
        }
    }

    fn finish(self) -> String {
        let keys = || self.lines.keys().chain(self.letters.keys());
        let height = keys().map(|(y, _)| y + 1).max().unwrap_or(0);
        let width = keys().map(|(_, x)| x + 1).max().unwrap_or(0);
        let at = |place: (usize, usize)| {
            let line = self.lines.get(&place).copied().unwrap_or(0);
            self.letters.get(&place).copied().unwrap_or_else(|| glyph(line))
        };
        let line = |y: usize| (0..width).map(|x| at((y, x))).collect::<String>().trim_end().to_owned() + "\n";
        (0..height).map(line).collect()
    }
}

fn glyph(line: u8) -> char {
    match line {
        0 => ' ',
        l if l & (EAST | WEST) == 0 => '│',
        l if l & (NORTH | SOUTH) == 0 => '─',
        l if l == EAST | SOUTH => '┌',
        l if l == WEST | SOUTH => '┐',
        l if l == EAST | NORTH => '└',
        l if l == WEST | NORTH => '┘',
        l if l == NORTH | EAST | SOUTH => '├',
        l if l == NORTH | WEST | SOUTH => '┤',
        l if l == EAST | WEST | SOUTH => '┬',
        l if l == EAST | WEST | NORTH => '┴',
        _ => '┼',
    }
}

/// Returns short names of the tables that a graph accesses, as in the paper: initials of several words, the first four
/// letters of one.
fn short_names(flow: &RecordedFlow) -> BTreeMap<usize, String> {
    let mut names: BTreeMap<usize, String> = BTreeMap::new();
    let mut used: Vec<usize> = flow.class.actions.iter().map(|action| action.table.index()).collect();
    used.sort_unstable();
    used.dedup();
    for table in used {
        let words: Vec<&str> =
            flow.tables[table].split(['_', '-', ' ']).filter(|word| !word.is_empty()).collect();
        let short: String = match words[..] {
            [word] => word.chars().take(4).collect(),
            _ => words.iter().filter_map(|word| word.chars().next()).collect(),
        };
        let short = short.to_uppercase();
        let same = names
            .values()
            .filter(|name| name.trim_end_matches(|c: char| c.is_ascii_digit()) == short)
            .count();
        names.insert(table, if same > 0 { format!("{short}{}", same + 1) } else { short });
    }
    names
}

/// A box.
#[derive(Clone, Debug)]
struct Placed {
    column: usize,
    /// The row of its text, from which its arrows go out.
    row: usize,
    /// Rows of the box, its border included.
    height: usize,
    text: String,
}

impl Placed {
    fn width(&self) -> usize {
        self.text.chars().count() + 4
    }
}

/// An arrow from box to box.
struct Arrow<'a> {
    from: usize,
    to: usize,
    /// The row in which it arrives: that of the source's text if it is straight, and never that of another text beside
    /// it.
    row: usize,
    key: &'a str,
}

/// Places the boxes, and assigns rows to the arrows between phases.
fn place<'a>(flow: &'a RecordedFlow, names: &BTreeMap<usize, String>) -> (Vec<Placed>, Vec<Arrow<'a>>) {
    let column_of = |action: u32| flow.phases.iter().position(|phase| phase.contains(&action)).unwrap_or(0);
    let mut placed: Vec<Placed> = (0_u32..)
        .zip(&flow.class.actions)
        .map(|(at, action)| {
            let (letter, name) = (action.operation.letter(), &names[&action.table.index()]);
            let text = format!("{letter}({name}){}", repeats(flow, at as usize));
            Placed { column: column_of(at), row: 0, height: 3, text }
        })
        .collect();
    let mut arrows = Vec::new();
    for (column, phase) in flow.phases.iter().enumerate() {
        let mut row = 1;
        for &at in phase {
            let beside: Vec<(usize, usize)> = placed
                .iter()
                .map(|source| (source.column + 1, source.row))
                .filter(|it| it.0 == column)
                .collect();
            let mut last = row;
            let into = flow.class.dependencies.iter().filter(|edge| edge.to == at);
            for edge in into.filter(|edge| column_of(edge.from) < column) {
                let source = &placed[edge.from as usize];
                let straight = source.column + 1 == column && source.row == row;
                if !straight {
                    last += 1;
                    while beside.iter().any(|(_, taken)| *taken == last) {
                        last += 1;
                    }
                }
                let row = if straight { row } else { last };
                arrows.push(Arrow { from: edge.from as usize, to: at as usize, row, key: &edge.key });
            }
            let it = &mut placed[at as usize];
            (it.row, it.height) = (row, last - row + 3);
            row = last + 3;
        }
    }
    (placed, arrows)
}

/// Columns that an arrow needs besides its label and tracks.
const ARROW: usize = 6;

/// Rows above the boxes.
const TOP: usize = 1;

/// Draws the arrows, and returns the left edges of the columns.
fn draw_arrows(columns: usize, placed: &[Placed], arrows: &[Arrow<'_>], canvas: &mut Canvas) -> Vec<usize> {
    // Each gap has tracks, then room for the labels.
    let mut tracks = vec![0_usize; columns];
    let mut labels = vec![0_usize; columns];
    for arrow in arrows {
        let (source, gap) = (&placed[arrow.from], placed[arrow.to].column - 1);
        labels[gap] = labels[gap].max(arrow.key.chars().count());
        tracks[gap] += usize::from(source.column != gap || source.row != arrow.row);
        tracks[source.column] += usize::from(source.column != gap);
    }
    let width =
        |column: usize| placed.iter().filter(|it| it.column == column).map(Placed::width).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut starts = vec![0];
    for column in 0..columns {
        starts.push(starts[column] + widths[column] + 2 * tracks[column] + labels[column] + ARROW);
    }
    let bottom = placed.iter().map(|it| it.row - 1 + it.height).max().unwrap_or(0) + TOP;
    let (mut used, mut lanes) = (vec![0_usize; columns], 0);
    let mut track = |gap: usize| {
        used[gap] += 1;
        starts[gap] + widths[gap] + 2 * used[gap] - 1
    };
    for Arrow { from, to, row, key } in arrows {
        let (source, gap) = (&placed[*from], placed[*to].column - 1);
        let (out, into) = (TOP + source.row, TOP + row);
        let leaves = starts[source.column] + source.width() - 1;
        let turns = if source.column == gap && out == into {
            leaves
        } else if source.column == gap {
            let x = track(gap);
            canvas.horizontal(out, leaves, x);
            canvas.vertical(x, out, into);
            x
        } else {
            let (down, up, lane) = (track(source.column), track(gap), bottom + lanes);
            lanes += 1;
            canvas.horizontal(out, leaves, down);
            canvas.vertical(down, out, lane);
            canvas.horizontal(lane, down, up);
            canvas.vertical(up, lane, into);
            up
        };
        let arrives = starts[placed[*to].column];
        canvas.horizontal(into, turns, arrives - 1);
        canvas.write((into, arrives - 1), "▶");
        if !key.is_empty() {
            canvas.write((into, arrives - 4 - key.chars().count()), &format!(" {key} "));
        }
    }
    starts
}

/// Draws the graph of one class.
pub(super) fn draw(flow: &RecordedFlow) -> String {
    let class = &flow.class;
    let names = short_names(flow);
    let mut out = format!(
        "{}: {} in {}, {}; {}, {} aborted\n\n",
        class.name,
        counted(class.actions.len(), "action"),
        counted(flow.phases.len(), "phase"),
        counted(class.sync_points.len(), "synchronization point"),
        counted(class.count as usize, "run"),
        flow.aborted,
    );
    let (placed, arrows) = place(flow, &names);
    let mut canvas = Canvas::default();
    let starts = draw_arrows(flow.phases.len(), &placed, &arrows, &mut canvas);
    for (column, start) in starts.iter().take(flow.phases.len()).enumerate() {
        let point = flow.sync_phases.iter().position(|phase| *phase as usize == column);
        let mark = point.map_or_else(String::new, |point| format!(" ◆{}", point + 1));
        canvas.write((0, *start), &format!("phase {}{mark}", column + 1));
    }
    for it in &placed {
        canvas.rectangle((TOP + it.row - 1, starts[it.column]), it.height, it.width());
        canvas.write((TOP + it.row, starts[it.column] + 2), &it.text);
    }
    for line in canvas.finish().lines() {
        out.push_str(format!("  {line}").trim_end());
        out.push('\n');
    }
    out.push('\n');
    let text = |at: u32| placed[at as usize].text.as_str();
    for (at, point) in class.sync_points.iter().enumerate() {
        let actions: Vec<&str> = point.actions.iter().map(|action| text(*action)).collect();
        out.push_str(&format!("  ◆{}  {}: {} bytes\n", at + 1, actions.join(", "), point.bytes));
    }
    for edge in &class.dependencies {
        if placed[edge.from as usize].column >= placed[edge.to as usize].column {
            let (from, to) = (text(edge.from), text(edge.to));
            out.push_str(&format!("  {from} and {to}, in one phase, share {}\n", edge.key));
        }
    }
    for (table, short) in &names {
        let by = (flow.actions.iter().zip(&class.actions))
            .filter(|(_, action)| action.table.index() == *table)
            .map(|(more, _)| &more.by)
            .max_by_key(|by| by.len());
        let by =
            by.filter(|by| !by.is_empty()).map_or_else(String::new, |by| format!(", by {}", by.join(", ")));
        out.push_str(&format!("  {short} is {}{by}\n", flow.tables[*table]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use atrapos::RecordedAction;
    use atrapos_adapt::{ClassFlow, FlowAction, FlowDependency, FlowOperation, FlowSyncPoint, TableIndex};

    /// Returns the graph of Figure 7: an order of five to fifteen items.
    fn new_order() -> RecordedFlow {
        use FlowOperation::{Insert, Read, Update};
        let tables =
            ["warehouse", "district", "customer", "orders", "new_order", "item", "stock", "order_line"];
        let kinds = [Read, Update, Read, Insert, Insert, Read, Update, Insert];
        let action = |(at, operation): (usize, FlowOperation)| {
            let (repeat_min, repeat_max) = if at < 5 { (1, 1) } else { (5, 15) };
            FlowAction { table: TableIndex(at as u32), operation, repeat_min, repeat_max }
        };
        let edges = [
            (0, 1, "w_id"),
            (1, 2, "w_id, d_id"),
            (1, 3, "w_id, d_id, o_id"),
            (3, 4, "w_id, d_id, o_id"),
            (0, 6, "w_id"),
            (5, 6, "i_id"),
            (3, 7, "w_id, d_id, o_id"),
        ];
        let points: [&[u32]; 5] = [&[0, 1, 2], &[1, 3, 4], &[0, 5], &[0, 5, 6], &[3, 7]];
        RecordedFlow {
            class: ClassFlow {
                name: "new-order".to_owned(),
                count: 300,
                actions: kinds.into_iter().enumerate().map(action).collect(),
                dependencies: edges
                    .map(|(from, to, key)| FlowDependency { from, to, key: key.to_owned() })
                    .into(),
                sync_points: points
                    .map(|actions| FlowSyncPoint { actions: actions.to_vec(), bytes: 22 })
                    .into(),
            },
            actions: vec![RecordedAction { by: vec!["w_id".to_owned()], follows: false }; 8],
            phases: vec![vec![0, 1, 2], vec![3, 4], vec![5], vec![6], vec![7]],
            sync_phases: vec![0, 1, 2, 3, 4],
            tables: tables.map(str::to_owned).into(),
            families: (0..8).collect(),
            aborted: 3,
        }
    }

    #[test]
    fn a_graph_of_several_rows_shows_every_edge() {
        insta::assert_snapshot!(draw(&new_order()));
    }

    #[test]
    fn tables_of_equal_initials_are_told_apart() {
        let mut flow = new_order();
        flow.tables[0] = "order_list".to_owned();
        flow.tables[1] = "Order-Log".to_owned();
        flow.tables[2] = "_".to_owned();
        let names: Vec<String> = short_names(&flow).into_values().collect();
        assert_eq!(names[..2], ["OL", "OL2"]);
        assert_eq!(names[7], "OL3");
    }

    #[test]
    fn a_class_of_no_actions_is_drawn_too() {
        let mut flow = new_order();
        flow.class = ClassFlow {
            name: "empty".to_owned(),
            count: 0,
            actions: vec![],
            dependencies: vec![],
            sync_points: vec![],
        };
        (flow.phases, flow.sync_phases, flow.actions) = (vec![], vec![], vec![]);
        assert!(draw(&flow).starts_with("empty: 0 actions in 0 phases"));
    }
}
