//! Random transactions of one client against ordered maps, with an opening in between now and then, and a power cut at the end.

use atrapos_baselines::Engine;
use atrapos_baselines::two_phase::OneThreadEngine;
use atrapos_durability::file::ModelFiles;
use atrapos_partition::abort::Abort;
use proptest::prelude::*;

use super::{create, open};
use crate::engines::model::{Model, TABLES, assert_same, make, step};
use crate::engines::{ENGINES, MakeEngine};

/// The engine without latches: its log is written by another thread.
const ONE_THREAD: MakeEngine = || Box::new(OneThreadEngine::new(3));

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_committed_comes_back(
        transactions in prop::collection::vec((prop::collection::vec(step(), 1..12), 0..6_u8), 1..12),
    ) {
        for make_engine in ENGINES.into_iter().chain([ONE_THREAD]) {
            let files = ModelFiles::new();
            let mut engine = create(make_engine(), &files).expect("files do not fail");
            let mut model: Model = vec![std::collections::BTreeMap::new(); usize::from(TABLES)];
            for (steps, end) in &transactions {
                let mut changed = model.clone();
                let ended = engine.client().attempt(&mut |tx| {
                    steps.iter().for_each(|step| make(tx, &mut changed, step));
                    if *end == 0 { Err(Abort::user("it changed its mind")) } else { Ok(()) }
                });
                if ended.is_ok() {
                    model = changed;
                }
                if *end == 1 {
                    drop(engine);
                    engine = open(make_engine, &files).expect("files do not fail");
                    assert_same(&engine, &model);
                }
            }
            drop(engine);
            let engine = open(make_engine, &files.power_cut(u64::from(transactions[0].1))).expect("all was synced");
            assert_same(&engine, &model);
        }
    }
}
