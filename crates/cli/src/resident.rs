//! The resident memory of this process.
//!
//! Owns: reading the kernel's answer. Never: fails; if the kernel does not say, there is no number.

/// Returns the bytes of memory that are resident for this process now.
pub(crate) fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn a_process_has_some_memory() {
        let bytes = super::resident_bytes().expect("the kernel says");
        assert!(bytes > 1 << 16, "{bytes} bytes");
    }
}
