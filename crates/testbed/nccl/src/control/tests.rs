//! The control block: mapped twice, refused where it is wrong, its buckets.
use super::*;

fn scratch(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("mtb-control-{name}-{}", std::process::id()))
}

#[test]
fn a_second_mapping_sees_what_the_first_wrote() {
    let path = scratch("share");
    let a = ControlFile::create(&path, 2, 8).unwrap();
    let b = ControlFile::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!((b.hosts(), b.ranks()), (2, 8));
    assert_eq!(b.rank(7).host_index.load(Relaxed), 1);
    assert_eq!(b.rank(0).compute_scale_milli.load(Relaxed), 1000);
    a.host(1).nic_down.store(1, Relaxed);
    assert!(b.host(1).is_down());
}

#[test]
fn hostile_files_are_refused() {
    let path = scratch("hostile");
    std::fs::write(&path, [7u8; 100]).unwrap();
    assert!(ControlFile::open(&path).is_err());
    std::fs::write(&path, [7u8; 1000]).unwrap();
    assert!(ControlFile::open(&path).is_err());
    drop(ControlFile::create(&path, 1, 4).unwrap());
    std::fs::File::options().write(true).open(&path).unwrap().set_len(300).unwrap();
    assert!(ControlFile::open(&path).is_err());
    std::fs::remove_file(&path).unwrap();
    assert!(ControlFile::create(&path, 0, 4).is_err());
}

#[test]
fn the_bucket_keeps_its_rate() {
    let path = scratch("bucket");
    let file = ControlFile::create(&path, 1, 1).unwrap();
    std::fs::remove_file(&path).unwrap();
    let host = file.host(0);
    host.link_bytes_per_sec.store(1_000_000, Relaxed);
    let (mut now, mut passed) = (5_000_000_000u64, 0u64);
    let end = now + 1_000_000_000;
    while now < end {
        match host.take(Direction::Egress, 10_000, now) {
            Ok(()) => passed += 10_000,
            Err(wait) => now += wait,
        }
    }
    assert!((900_000..=1_150_000).contains(&passed), "{passed}");
    host.background_bytes_per_sec.store(2_000_000, Relaxed);
    assert_eq!(host.effective_rate(Direction::Ingress), 20_000);
}

#[test]
fn a_slow_path_limits_what_goes_there_and_nothing_else() {
    let path = scratch("path");
    let control = ControlFile::create(&path, 1, 1).unwrap();
    let (host, slow, other) = (control.host(0), Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::new(127, 0, 0, 3));
    host.slow_peer_bytes_per_sec.store(1_000_000, Relaxed);
    host.slow_peer.store(u64::from(u32::from(slow)), Relaxed);
    assert_eq!(host.take_on_path(slow, BURST_BYTES, 1), Ok(()));
    assert_eq!(host.take_on_path(slow, 1_000, 1), Ok(()));
    let wait = host.take_on_path(slow, 1_000, 1).unwrap_err();
    assert!((900_000..=1_100_000).contains(&wait), "{wait}");
    assert_eq!(host.take_on_path(other, BURST_BYTES * 10, 1), Ok(()));
    host.slow_peer.store(0, Relaxed);
    assert_eq!(host.take_on_path(slow, BURST_BYTES * 10, 1), Ok(()));
    std::fs::remove_file(path).unwrap();
}
