//! Simulations side by side: as many as there are cores, with results in the order of the jobs.
//!
//! Owns: the threads. Never: measures time; what runs here computes, and gives the same result however many run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use atrapos_cli::error::CliError;
use atrapos_topology::{LiveOptions, Machine};

/// Runs `run` on every job and gives the results to `take`, in the order of the jobs and as soon as they are there.
///
/// # Errors
/// The first error of a job, in their order, or of `take`. Jobs that have begun end first.
pub(super) fn in_order<J: Sync, R: Send>(
    jobs: &[J],
    run: impl Fn(&J) -> Result<R, CliError> + Sync,
    mut take: impl FnMut(R) -> Result<(), CliError>,
) -> Result<(), CliError> {
    let cores = Machine::live(&LiveOptions::new(None)).usable_core_count();
    let threads = cores.max(1).min(jobs.len());
    let (sender, results) = mpsc::channel();
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..threads {
            let (sender, next, run) = (sender.clone(), &next, &run);
            scope.spawn(move || {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(at) else { break };
                    if sender.send((at, run(job))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        let mut early = BTreeMap::new();
        let mut wanted = 0;
        for (at, result) in results {
            early.insert(at, result);
            while let Some(result) = early.remove(&wanted) {
                wanted += 1;
                result.and_then(&mut take).inspect_err(|_| next.store(jobs.len(), Ordering::Relaxed))?;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use atrapos_cli::error::CliError;

    use super::in_order;

    #[test]
    fn results_come_in_the_order_of_the_jobs_and_the_first_error_ends_it() {
        let jobs: Vec<u64> = (0..100).collect();
        let mut taken = Vec::new();
        let squared = |job: &u64| Ok(job * job);
        in_order(&jobs, squared, |result| {
            taken.push(result);
            Ok(())
        })
        .expect("no error");
        assert_eq!(taken, jobs.iter().map(|job| job * job).collect::<Vec<_>>());
        let mut taken = 0;
        let failing =
            |job: &u64| if *job % 30 == 29 { Err(CliError::failed(job.to_string())) } else { Ok(*job) };
        let error = in_order(&jobs, failing, |_| {
            taken += 1;
            Ok(())
        });
        assert_eq!((taken, error.expect_err("the 30th").to_string().contains("29")), (29, true));
    }
}
