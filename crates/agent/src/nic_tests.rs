//! Interfaces of a made-up `/sys/class`.
use super::*;
use std::fs;
use std::os::unix::fs::symlink;

struct FakeSys {
    dir: tempfile::TempDir,
}

impl FakeSys {
    fn new() -> FakeSys {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(dir.path().join("net")).expect("net");
        FakeSys { dir }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("net")
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().expect("a file in a directory")).expect("directories");
        fs::write(path, text).expect("file");
    }

    fn ethernet(&self, name: &str) {
        let files = [
            ("operstate", "up\n"),
            ("carrier", "1\n"),
            ("carrier_changes", "3\n"),
            ("speed", "200000\n"),
            ("statistics/tx_bytes", "1000\n"),
            ("statistics/rx_bytes", "2000\n"),
            ("statistics/rx_errors", "1\n"),
            ("statistics/tx_errors", "2\n"),
            ("statistics/rx_dropped", "3\n"),
            ("statistics/tx_dropped", "4\n"),
        ];
        for (file, text) in files {
            self.put(&format!("net/{name}/{file}"), text);
        }
    }

    fn sample(&self, filter: &[&str]) -> Vec<NicState> {
        let filter: Vec<String> = filter.iter().map(|f| f.to_string()).collect();
        sample_with(&mut NicSampler::new(&self.root(), &filter), 1)
    }
}

fn sample_with(sampler: &mut NicSampler, now: u64) -> Vec<NicState> {
    let mut out = Vec::new();
    sampler.sample(HostTime(now), &mut out);
    out
}

fn names(states: &[NicState]) -> Vec<&str> {
    states.iter().map(|s| &*s.nic).collect()
}

#[test]
fn an_ethernet_interface_is_read_whole() {
    let sys = FakeSys::new();
    sys.ethernet("eth0");
    let expected = NicState {
        at: HostTime(1),
        nic: "eth0".into(),
        up: true,
        link_changes: 3,
        speed_bytes_per_sec: 25_000_000_000,
        tx_bytes: 1000,
        rx_bytes: 2000,
        errors: 10,
    };
    assert_eq!(sys.sample(&[]), [expected]);
}

#[test]
fn an_infiniband_port_counts_lanes_of_four_bytes() {
    let sys = FakeSys::new();
    for (file, text) in [
        ("state", "4: ACTIVE\n"),
        ("rate", "400 Gb/sec (4X NDR)\n"),
        ("counters/port_xmit_data", "250\n"),
        ("counters/port_rcv_data", "500\n"),
        ("counters/port_rcv_errors", "1\n"),
        ("counters/port_xmit_discards", "2\n"),
        ("counters/link_downed", "7\n"),
    ] {
        sys.put(&format!("infiniband/mlx5_0/ports/1/{file}"), text);
    }
    sys.put("infiniband/mlx5_1/ports/1/state", "1: DOWN\n");
    let states = sys.sample(&[]);
    assert_eq!(names(&states), ["mlx5_0:1", "mlx5_1:1"]);
    assert_eq!((states[0].tx_bytes, states[0].rx_bytes), (1000, 2000));
    assert_eq!(states[0].speed_bytes_per_sec, 50_000_000_000);
    assert_eq!((states[0].up, states[0].link_changes, states[0].errors), (true, 7, 3));
    assert!(!states[1].up);
    assert_eq!(names(&sys.sample(&["mlx5_0"])), ["mlx5_0:1"]);
    assert_eq!(names(&sys.sample(&["mlx5_1:1"])), ["mlx5_1:1"]);
}

#[test]
fn loopback_is_left_out_unless_named_or_alone() {
    let sys = FakeSys::new();
    sys.ethernet("lo");
    assert_eq!(names(&sys.sample(&[])), ["lo"], "alone");
    sys.ethernet("eth0");
    sys.ethernet("eth1");
    assert_eq!(names(&sys.sample(&[])), ["eth0", "eth1"]);
    assert_eq!(names(&sys.sample(&["lo", "eth1"])), ["eth1", "lo"], "named");
}

#[test]
fn a_link_down_and_states_the_kernel_does_not_know() {
    let sys = FakeSys::new();
    sys.ethernet("eth0");
    sys.put("net/eth0/operstate", "down\n");
    assert!(!sys.sample(&[])[0].up);
    sys.put("net/eth0/operstate", "unknown\n");
    assert!(sys.sample(&[])[0].up, "carrier tells");
    sys.put("net/eth0/carrier", "0\n");
    assert!(!sys.sample(&[])[0].up);
    sys.put("net/eth0/speed", "-1\n");
    assert_eq!(sys.sample(&[])[0].speed_bytes_per_sec, 0);
    fs::remove_file(sys.root().join("eth0/carrier_changes")).expect("remove");
    sys.put("net/eth0/carrier_up_count", "2\n");
    sys.put("net/eth0/carrier_down_count", "1\n");
    assert_eq!(sys.sample(&[])[0].link_changes, 3);
}

#[test]
fn garbage_counts_as_nothing() {
    let sys = FakeSys::new();
    assert_eq!(sys.sample(&[]), [], "an empty root");
    sys.put("net/bonding_masters", "bond0\n");
    assert_eq!(sys.sample(&[]), [], "a file is not an interface");
    sys.put("net/eth0/statistics/tx_bytes", "99999999999999999999999999\n");
    sys.put("net/eth0/statistics/rx_bytes", "\u{1f4a5}");
    sys.put("net/eth0/operstate", &"x".repeat(1 << 20));
    fs::create_dir(sys.root().join("eth0/speed")).expect("a directory instead of a file");
    symlink("tx_dropped", sys.root().join("eth0/statistics/tx_dropped")).expect("a link to itself");
    let states = sys.sample(&[]);
    assert_eq!(names(&states), ["eth0"]);
    assert_eq!((states[0].tx_bytes, states[0].rx_bytes, states[0].errors, states[0].up), (0, 0, 0, false));
    let missing = sys.dir.path().join("nowhere/net");
    assert_eq!(sample_with(&mut NicSampler::new(&missing, &[]), 1), []);
}

#[test]
fn counters_follow_and_the_speed_is_asked_rarely() {
    let sys = FakeSys::new();
    sys.ethernet("eth0");
    let mut sampler = NicSampler::new(&sys.root(), &[]);
    assert_eq!(sample_with(&mut sampler, 1)[0].speed_bytes_per_sec, 25_000_000_000);
    sys.put("net/eth0/speed", "100\n");
    sys.put("net/eth0/statistics/tx_bytes", "1500\n");
    let state = sample_with(&mut sampler, 2).remove(0);
    assert_eq!((state.speed_bytes_per_sec, state.tx_bytes), (25_000_000_000, 1500));
    assert_eq!(sample_with(&mut sampler, 1 + SPEED_EVERY_NS)[0].speed_bytes_per_sec, 12_500_000);
}

#[test]
fn the_number_of_interfaces_is_bounded() {
    let sys = FakeSys::new();
    for i in 0..NICS_MAX + 5 {
        sys.put(&format!("net/veth{i}/statistics/tx_bytes"), "1");
    }
    assert_eq!(sys.sample(&[]).len(), NICS_MAX);
}

#[test]
fn rates_of_infiniband() {
    assert_eq!(infiniband_rate_bytes_per_sec("2.5 Gb/sec (1X SDR)"), 312_500_000);
    for garbage in ["", "Gb/sec", "-1 Gb/sec", "NaN Gb/sec", "10 Mb/sec"] {
        assert_eq!(infiniband_rate_bytes_per_sec(garbage), 0, "{garbage}");
    }
}
