use serde::{Deserialize, Serialize};
use std::fs;

/// Where a run took place: figures of two machines are not compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    pub cpu: String,
    pub cores: u64,
    /// In bytes.
    pub memory: u64,
    pub kernel: String,
}

impl Machine {
    /// The machine that this program runs on. Values that cannot be read are `unknown` or zero.
    pub fn here() -> Self {
        let text = |path| fs::read_to_string(path).unwrap_or_default();
        Self::read(
            &text("/proc/cpuinfo"),
            &text("/proc/meminfo"),
            &text("/proc/sys/kernel/osrelease"),
        )
    }

    fn read(cpuinfo: &str, meminfo: &str, release: &str) -> Self {
        let fields = || cpuinfo.lines().filter_map(|line| line.split_once(':'));
        // ARM's kernels do not name the model.
        let model = fields().find(|(name, _)| name.trim() == "model name");
        let cpu = match model {
            Some((_, model)) => model.trim().to_owned(),
            None => format!("unknown ({})", std::env::consts::ARCH),
        };
        let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
        let kilobytes: Option<u64> =
            total.and_then(|text| text.trim().strip_suffix("kB")?.trim().parse().ok());
        let kernel = match release.trim() {
            "" => "unknown",
            release => release,
        };
        Self {
            cpu,
            cores: fields().filter(|(name, _)| name.trim() == "processor").count() as u64,
            memory: kilobytes.unwrap_or(0).saturating_mul(1024),
            kernel: kernel.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_read_from_the_kernels_texts() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Some CPU @ 2.00GHz\n\nprocessor\t: 1\nmodel name\t: Some CPU @ 2.00GHz\n";
        let machine = Machine::read(cpuinfo, "MemFree: 1 kB\nMemTotal:  2048 kB\n", "6.1.0\n");
        let expected = Machine {
            cpu: "Some CPU @ 2.00GHz".to_owned(),
            cores: 2,
            memory: 2 << 20,
            kernel: "6.1.0".to_owned(),
        };
        assert_eq!(machine, expected);
    }

    #[test]
    fn what_is_not_told_is_unknown() {
        let machine = Machine::read("processor : 0\nBogoMIPS : 50.00\n", "", "");
        assert!(machine.cpu.starts_with("unknown ("), "{}", machine.cpu);
        assert_eq!((machine.cores, machine.memory, machine.kernel.as_str()), (1, 0, "unknown"));
    }

    #[test]
    fn this_machine_has_cores_and_memory() {
        let machine = Machine::here();
        assert!(machine.cores > 0 && machine.memory > 0, "{machine:?}");
    }
}
