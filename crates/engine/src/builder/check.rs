//! Checks of the settings of a database.
//!
//! Owns: the limits of the settings, and the explanations of refusals. Never: changes a setting.

use atrapos_partition::redo::TRANSACTION_REDO_BYTES_MAX;
use atrapos_partition::routing::InstanceId;
use atrapos_transaction::wal::{Durability, WalLimits};

use super::{Builder, OpenError};

impl Builder {
    /// Refuses settings that make no sense.
    pub(super) fn check(&self, workers: usize) -> Result<(), OpenError> {
        check_workers(workers, self.spare_workers)?;
        if self.inbox_slots == 0 {
            return Err(OpenError::Setting(
                "an inbox of zero slots takes no request; use at least 1".to_owned(),
            ));
        }
        if let Durability::Relaxed { max_loss_ms: 0 } = self.policy.durability {
            return Err(OpenError::Setting(
                "relaxed durability that may lose 0 ms is synchronous durability; ask for that, or for at least 1 ms"
                    .to_owned(),
            ));
        }
        check_limits(self.policy.limits)?;
        self.adaptation.map_or(Ok(()), |adaptation| adaptation.check().map_err(OpenError::Setting))
    }
}

impl Builder {
    /// Refuses a division of the keys that makes no sense, and a directory for an instance.
    pub(super) fn check_division(&self, has_directory: bool) -> Result<(), OpenError> {
        let Some(division) = &self.division else { return Ok(()) };
        let (instance, instances) = (usize::from(division.instance.0), division.workers.len());
        if instance >= instances || instances > InstanceId::MAX {
            return Err(OpenError::Setting(format!(
                "instance {instance} is none of a deployment of {instances} instances; number them from 0"
            )));
        }
        if let Some(idle) = division.workers.iter().position(|workers| *workers == 0) {
            return Err(OpenError::Setting(format!(
                "instance {idle} has no worker; give every instance of a deployment at least 1"
            )));
        }
        if has_directory && self.policy.durability == Durability::None {
            return Err(OpenError::Setting(
                "checkpoints of instances at different moments are no state of the deployment; give an instance with a directory a \
                 WAL (Durability::Synchronous or Relaxed), or keep it in memory"
                    .to_owned(),
            ));
        }
        Ok(())
    }
}

/// The greatest number of workers that is accepted.
const WORKERS_MAX: usize = 4096;

fn check_workers(workers: usize, spare: usize) -> Result<(), OpenError> {
    match workers.saturating_add(spare) {
        _ if workers == 0 => {
            Err(OpenError::Setting("zero workers cannot own data; use at least 1".to_owned()))
        }
        1..=WORKERS_MAX => Ok(()),
        workers => Err(OpenError::Setting(format!(
            "{workers} workers are more than any machine has cores; use at most {WORKERS_MAX}"
        ))),
    }
}

fn check_limits(limits: WalLimits) -> Result<(), OpenError> {
    let refuse = |why: String| Err(OpenError::Setting(why));
    match limits {
        WalLimits { transaction_redo_bytes: 0, .. } => {
            refuse("transactions of zero bytes of redo change nothing; allow at least 1".to_owned())
        }
        WalLimits { transaction_redo_bytes: bytes, .. } if bytes > TRANSACTION_REDO_BYTES_MAX => {
            refuse(format!(
                "transactions of {bytes} bytes of redo do not fit a frame of the WAL; allow at most \
             {TRANSACTION_REDO_BYTES_MAX}"
            ))
        }
        WalLimits { buffer_bytes: 0, .. } => {
            refuse("a WAL buffer of zero bytes takes no transaction; use at least 1".to_owned())
        }
        _ => Ok(()),
    }
}
