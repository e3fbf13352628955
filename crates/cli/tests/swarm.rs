//! Simulated jobs that were once diagnosed wrongly: each was mended and stays so. What is still wrong, and how often, is on
//! docs/results/accuracy.md.
mod common;

use common::{mycroft, say};

/// Seed, family ("" for the one that the seed draws), and what was said before.
const MENDED: [(&str, &str, &str); 259] = [
    ("16", "", "a link that flaps in a tree was a device that stopped"),
    ("17", "", "a device that fails: one that waits for it behind a whole host"),
    ("28", "", "a congested way was one of its two ends"),
    ("51", "", "a NIC that is down in a ring with several members per host was a device upstream"),
    ("58", "", "a slow NIC in two rings was traffic between it and a host behind it"),
    ("66", "", "three hosts whose processes were killed were one rank"),
    ("91", "", "a switch that restarts was a device behind it"),
    ("99", "", "a link that flaps was the last ranks before it"),
    ("57", "", "a collective that one rank left out was a deadlock of two"),
    ("74", "", "hosts under a switch that restarts were two others"),
    ("131", "", "hosts that vanished were the device of one that waited for them"),
    ("169", "", "of three hosts whose processes were killed one was named"),
    ("10", "", "processors so slow that no iteration of a long ring ended any more: a severity that nothing has"),
    ("68", "", "main threads on busy processors, late to issue, were a hang of one rank"),
    ("112", "", "busy processors of a host were its NIC"),
    ("142", "", "the same in a small job were the way between two hosts"),
    ("225", "", "the same in a ring were slow copies of those that wait behind it"),
    ("115", "", "a rank that waits for input again and again was a row of pauses that went away"),
    ("24", "healthy", "layers of a long pipeline's first iteration were slow iterations"),
    ("107", "healthy", "the same in an interleaved pipeline"),
    ("23", "", "a rank whose sends are slow was as likely its neighbour"),
    ("36", "", "nobody was named for a slow copy of the last of a host's ranks in a ring"),
    ("73", "", "a slow copy was congestion between the hosts before and after it"),
    ("113", "", "threads that wait for a processor were the device of one that waits for them"),
    ("2043", "", "nobody was named for a crowded host behind a slow NIC"),
    ("2191", "", "a crowded host whose ranks do not come for seconds was a hang of one of them"),
    ("4015", "", "nobody was named for a congested way behind a crowded host"),
    ("7076", "", "of three hosts that were killed the one was named whose agent looked first"),
    ("5132", "", "who waits behind two faults was a slow NIC"),
    ("7421", "", "behind a link that flaps a device was named that waits for data"),
    ("7741", "", "a rank that never came, on a host with a chore to do, was a crowded host"),
    ("2034", "", "a rank whose sends are slow, alone on its way to the next, was congestion"),
    ("8091", "", "who received from a rank whose sends are slow was a proxy thread that pauses"),
    ("7142", "", "processors so slow that none of a host's ranks came were a hang of one of them"),
    ("7333", "", "devices that were slow for an iteration each began a slow NIC before it was slow"),
    ("8122", "", "of three hosts that vanished only the one that others waited for was named"),
    ("9187", "", "nobody was named for a NIC whose two ways were four times as slow"),
    ("9033", "", "nobody was named for a device in a job where some rank or other computes longer in every iteration"),
    ("9244", "", "the same of a congested way"),
    ("9467", "", "nothing: slow sends on the only wire between two hosts, named as the way between them"),
    ("4342", "healthy", "who waits a little longer in a restless job was a congested way"),
    ("10221", "", "devices that were slow for an iteration each, around an evaluation, were one slow device"),
    (
        "8149",
        "",
        "nobody was named for a slow NIC beside a slow device, among small messages that take several times as long",
    ),
    ("10002", "", "the same of a congested way: a slow copy of one that waits behind it"),
    ("11204", "", "a slow NIC at a leaf of a tree was the way to its parent"),
    ("11277", "", "of two that disagree on a size both were named, though one did what it always does"),
    ("10007", "", "nobody was named for a proxy thread that pauses: the third of three long iterations never ended"),
    ("11048", "", "the same of a crowded host"),
    ("8118", "", "nobody was named for a proxy thread whose first pauses were a stall that nobody was seen to make"),
    ("8135", "", "who is not served by a proxy thread that pauses, and seems to pause as often, hid it"),
    ("9001", "", "who has no room to send to was the proxy thread that pauses"),
    ("11057", "", "the same, once two long iterations were enough"),
    ("12237", "", "the same, after a stall that nobody was seen to make"),
    ("12240", "", "the same in a ring across hosts"),
    ("12103", "", "who waits in a tree for a rank that issues late was a slow copy"),
    ("12167", "", "nobody was named for a crowded host in a job that is restless because of it"),
    ("12006", "", "who had no room to send to, because a rank had not come, was a proxy thread that pauses"),
    ("13039", "", "a host whose sockets are joined badly was the way between it and its neighbour"),
    ("13079", "", "the same where some of what it receives comes so late that nothing is seen of it"),
    ("13198", "", "a slow NIC was a crowded host, two thirds of whose cores were free"),
    ("12089", "", "nobody was named for a proxy thread that pauses in iterations that follow each other"),
    ("13604", "", "the same, as stalls that nobody was seen to make"),
    ("14391", "", "who sends to a proxy thread that pauses was the one that does"),
    ("14230", "", "the only link on its way was the way"),
    ("14193", "", "a slow NIC whose small messages take a latency each was the way to the next host"),
    ("15239", "", "the same where what little it carries elsewhere is slow"),
    ("13749", "", "a congested way in a ring was its sender, for whom others wait"),
    ("13575", "", "a congested way was one end of it, since its other way had been slow for another reason"),
    ("15588", "", "a stall of a crowded host was two hosts' network, since that had been crowded for long"),
    ("14166", "", "nobody was named for slow copies at the exit of a ring"),
    ("14069", "", "the same in a ring of few slices"),
    ("15360", "", "two slow links of one rank were the way"),
    ("15435", "", "nobody was named for a crowded host that made iterations take seven times as long"),
    ("15219", "", "a crowded host that had recovered hid a slow device"),
    ("5818", "healthy", "layers of a job's first second were iterations, and two devices that warm up were slow"),
    ("16117", "", "a rank that issued two collectives in the wrong order had left one out"),
    ("9", "", "nothing: an agent that was out, as an example of silence"),
    ("17073", "", "a device in a tree that stopped was one that waits for a neighbour inside its host"),
    ("16769", "", "a rank whose sends are slow was a proxy thread of its receiver that pauses"),
    ("16196", "", "a rank whose sends are slow was as likely the one that receives them"),
    ("16219", "", "a collective that one rank left out was eight others for which nobody waits"),
    ("16890", "", "a device besides another was dated to an odd long iteration before it"),
    ("14319", "", "nobody was named for a copy so slow that its collective never ended"),
    ("390", "", "nobody was named for a copy so slow that no baseline saw another iteration"),
    ("12152", "", "nobody was named for slow copies in a restless job"),
    ("16661", "", "nobody was named for a rank that waits for input besides a slow device in a restless job"),
    ("16502", "", "nobody was named for a rank that waits for input a few iterations after a crowded host"),
    ("13866", "", "nobody was named for a device besides a congested way, whose step seemed the way's"),
    ("16148", "", "nobody was named for a slow NIC after two devices, whose iterations were taken for healthy ones"),
    ("13799", "", "nobody was named for a crowded host besides a slow NIC in an iteration that did not end"),
    ("18021", "", "a rank that waits for input besides a congested way was slow copies of others"),
    ("18517", "", "of two hosts that vanished the one was named for which others waited"),
    ("18321", "", "a congested way was slow copies of those that wait behind it"),
    ("17236", "", "a congested way was one of its ends, which received from who was late before"),
    ("15535", "", "a slow NIC besides another fault was two other hosts"),
    ("13528", "", "a host with a single neighbour was named without it"),
    ("15490", "", "a congested way was dated to an evaluation before it"),
    ("16076", "", "a slow NIC was the way to the next host"),
    ("15472", "", "a congested way besides another was slow copies of others"),
    (
        "13413",
        "",
        "nobody was named for a congested way where a collective of every fifteenth iteration was the marker",
    ),
    ("19108", "", "a slow NIC behind a slow device was the way between it and the next host"),
    ("13933", "", "a slow NIC was as likely the next host's"),
    ("19101", "", "a collective that one rank left out was a deadlock, since a loss comes every fourth iteration"),
    ("19344", "", "nobody was named for slow copies in a tree, for which a rank of the same host waits"),
    ("19357", "", "a rank whose sends are slow was as likely a receiver that comes late for everybody"),
    ("7978", "healthy", "evenly spaced layers and one long wait among them were a level of healthy iterations"),
    ("8263", "healthy", "a device with bad luck in three of five iterations was slow"),
    (
        "22166",
        "",
        "a device that stops while its main thread waits for it: nothing tells it from a main thread that is stuck",
    ),
    ("22265", "", "who had sent what fits the FIFO did not go on, behind a rank that left a collective out"),
    ("20034", "", "a crowded host's case went over to the next fault"),
    ("20125", "", "a rank that had not been looked at since its peer left stood still"),
    ("20226", "", "data that waits for room, behind a device that is slow, was a congested way"),
    ("20297", "", "the child of a tree that is awaited now, because of a slow copy, was on a congested way"),
    ("20668", "", "who waited for a rank that comes late copied slowly"),
    ("20729", "", "nobody was named for a crowded host after another"),
    ("20736", "", "nothing: a slow copy in an iteration that takes many times as long"),
    ("20867", "", "as in 20226, behind a rank that waits for input"),
    ("20985", "", "of a restless rank three iterations in a window of five were long"),
    ("15421", "", "nobody was named for a congested way that began beside a crowded host"),
    ("16122", "", "the same"),
    ("19143", "", "the same of a slow NIC in a job that crawls"),
    ("22126", "", "a congested way in a tree was slow copies of hosts behind it"),
    ("22153", "", "nobody was named for a congested way that began beside a slow device"),
    ("22182", "", "a rank whose sends are slow, alone on its way to the next, was congestion"),
    ("22238", "", "nobody was named for a congested way that began beside a crowded host"),
    ("24109", "", "an onset seven seconds early: a checkpoint lay in the iteration"),
    ("24417", "", "a checkpoint that only a later stage's iterations showed yet was a hundred late main threads"),
    ("30352", "", "a way that waits behind a crowded host was congestion besides"),
    ("30448", "", "the same behind a slow device"),
    ("26061", "", "a way that one long iteration dated was a second case"),
    ("26021", "", "a device that leaves its slots and goes on was a device that stops"),
    ("40879", "", "of a rank whose sends are slow and its neighbour both were named: some messages are latency only"),
    ("40888", "", "slow sends on the only link between two hosts were congestion"),
    ("40601", "", "a NIC whose host came late to what little else it receives was the way to its neighbour"),
    ("40629", "", "processors two hundred times slower were a hang of one rank"),
    ("31278", "", "of two hosts whose NICs were told by small messages the one that came late was named"),
    ("30240", "", "a NIC whose host came late to small messages was the way to its neighbour"),
    ("31396", "", "a congested way was what its end receives, of which nobody waited for anything else"),
    ("30392", "", "a congested way was the NIC of one of its ends, which both came late to all else"),
    ("31105", "", "a NIC in a ring was the traffic between it and the host behind it"),
    ("18159", "", "a slow NIC behind two other faults was hidden by what a busy host held before"),
    ("33000", "mycroft", "of traffic that two hosts share two pairs were as likely, and nobody was named"),
    ("24396", "", "sends so slow that no slice came for seconds were a host's link that is down"),
    ("26188", "", "a slow copy at a leaf of a tree was its root, which waited inside its host"),
    ("26208", "", "a slow copy in a tree was a congested way"),
    ("26238", "", "a slow copy in a tree of 256 was a congested way between two others"),
    ("30341", "", "a thread of a host whose processors are 232 times slower had stopped"),
    ("30346", "", "a host whose processors are 34 times slower: its threads were late now and then, then never came"),
    ("31473", "", "sends hundreds of times slower were pauses of who receives them"),
    ("50946", "", "the only slow copy was a way that all use at once because of it"),
    ("41016", "", "a device's fault, right, began with an iteration of twelve seconds, ten seconds before"),
    ("53176", "", "the same four seconds before"),
    ("54790", "", "the same of a congested way"),
    (
        "54081",
        "",
        "a proxy thread that pauses, right, since an iteration that began four seconds before its first pause",
    ),
    ("54236", "", "of two that disagree both were named, though one does what it never did at that point"),
    ("54617", "", "of two hosts that vanished one was named: its agent had looked a little later"),
    ("60362", "", "of a link that is slow both ends were as likely, though all that the sender sends is slow"),
    (
        "54927",
        "",
        "the same where it sends little else: messages that are mostly latency are slower, if not three times",
    ),
    ("56765", "", "the same"),
    ("55586", "", "slow sends were a host's NIC because a thread elsewhere was late with a little"),
    ("60422", "", "a deadlock was a desync: an operation that comes twice now and then seemed to follow as soon"),
    ("60658", "", "three hosts that vanished were some of their ranks: nobody waited for all of these"),
    ("60756", "", "a device that stopped was a peer, ahead of it, that may have waited inside its host"),
    ("60981", "", "a way that is slow in one direction, since traffic meets on it, was congested"),
    ("60987", "", "a slow NIC was the way to a peer: its other messages, mostly latency, took only twice as long"),
    ("56151", "", "the same, told rightly by the next look, which was to account for more than the first"),
    ("56650", "", "a congested way, right, since four seconds before: since the rank that was suspected first"),
    ("56296", "", "a throttled host was the one rank of it that had not come at the first look"),
    ("56791", "", "the same where only one ever does not: calls had been slow for as long as anybody knew"),
    ("56916", "", "what a later fault cost was the first one's, which was missed"),
    ("57097", "", "a way that waits behind a slow device had a case of its own"),
    ("57682", "", "the case of a throttled device, over, was given to ways that hardly grew"),
    ("57226", "", "a copy so slow that its operation never ended was nobody's, though the job had stood for 15 s"),
    ("58197", "", "of a contended host half of the ranks showed it, and nobody was named"),
    ("59033", "", "a slow NIC behind a crowded host was two: what became slow with that host was left out of account"),
    ("58521", "", "two hosts whose interfaces others keep busy were not named where iterations are restless"),
    ("70038", "", "chance in what ranks took behind a crowded host said that a device behind it was slow by chance"),
    (
        "58541",
        "",
        "nobody was named for a rank that waits for input behind a crowded host, where five iterations take twelve seconds",
    ),
    ("58166", "", "a loss in every fourth iteration was taken for its end while one crawled, and all was forgotten"),
    ("56626", "", "nobody was named for a crowded host behind a slow NIC, by two long iterations and its counters"),
    ("53442", "", "a rank whose sends are slow was a proxy thread that pauses: nothing that it receives stood still"),
    ("58880", "", "the same"),
    ("70129", "", "the same"),
    ("71143", "", "the same"),
    ("71454", "", "the same, once the case had said that it pauses"),
    ("71693", "", "the same"),
    ("71174", "", "nobody was named for a device that stopped inside its host, which had taken more than it sent on"),
    ("72092", "", "a throttled host was a hang of one rank, whose host's others had issued too little to tell"),
    (
        "59082",
        "",
        "a rank that waits for input was copies elsewhere: its last iteration ended a little later than others'",
    ),
    (
        "54808",
        "",
        "a host whose memory is far away was copies of one that waits behind it, twice as slow in one direction only",
    ),
    ("72950", "", "a link that was down and came back was a device by chance"),
    ("73158", "", "slow copies were a device that computed longer for three iterations, whatever came later"),
    (
        "73504",
        "",
        "a crowded host became the device before it again when that had its end, and a slow NIC behind both was nobody",
    ),
    (
        "80351",
        "",
        "the only link between two hosts, slow because of its sender, was congested: its other messages are mostly latency",
    ),
    (
        "80554",
        "",
        "traffic that meets at two hosts was the NIC of the one or the other: what little they carry besides tells",
    ),
    ("75059", "", "the same, one of the two said for sure"),
    ("75759", "", "the same, where a ring besides has next to no latencies"),
    (
        "80677",
        "",
        "congestion was a rank that computes longer for a moment, as some rank or other does in each iteration",
    ),
    ("74354", "", "two congested ways at once were one between them, over which data was as fast as before"),
    ("80734", "", "a congested way was two NICs: a ring of the other pipeline stage waits as well"),
    ("74148", "", "nobody was named for a crowded host that was seen once, over fifteen seconds"),
    (
        "75165",
        "",
        "a rank left out a collective of an evaluation, and the job went on, slower: a copy elsewhere had the case",
    ),
    ("75227", "", "the same, and nobody was named"),
    (
        "80874",
        "",
        "a congested way behind a throttled device took less than a quarter of an iteration: nobody was named",
    ),
    ("81687", "", "a healthy job had a case: iterations that a moment had made long were taken for usual ones"),
    (
        "81694",
        "",
        "a loss that was due in every fourth iteration was no one's departure from the order, and two ranks were named",
    ),
    (
        "82085",
        "",
        "a deadlock was a desync: what was awaited was issued out of turn, many turns after what seemed to be one",
    ),
    (
        "81978",
        "",
        "congestion, and a NIC behind it, in a restless job that was a third slower for many iterations: nobody was named",
    ),
    (
        "78121",
        "",
        "a link was fourteen times slower in a restless job: nothing told which of its ends, and neither was named",
    ),
    ("78203", "", "a copy was so slow that the job seemed to stand for two seconds again and again: each was a moment"),
    ("82920", "", "other traffic was a rank that receives slowly, although most links to its host were as slow"),
    (
        "83179",
        "",
        "a rank of which an older operation was forgotten than of its peers had left it out, and traffic had no case",
    ),
    ("83720", "", "who computed longer by chance in three iterations was named, of which others were as long"),
    ("84216", "", "a throttled host in a restless job: its copies, that wait for its threads, told nothing of its end"),
    ("84160", "", "each slot of a device that is slow with them was a hang anew"),
    ("83115", "", "the same, two slots long"),
    ("84666", "", "a NIC in a restless job took a little less than makes a job slow: nobody was named"),
    ("84761", "", "who receives from a slow sender paused: it showed nothing else but short messages, which pass"),
    ("85887", "", "traffic between two hosts in a ring whose ends were slower before was what one of them receives"),
    ("87118", "", "nobody was named for a congested way whose ends were the least sure suspects of another case"),
    (
        "87337",
        "",
        "a rank whose sends are slow, of whose short messages only the rest is seen, was the way to the next host",
    ),
    ("88440", "", "who receives from a rank whose sends are all slow was a proxy thread that pauses"),
    ("200003", "pulse", "nobody was named for a crowded host of which only two iterations were left"),
    (
        "200237",
        "mycroft",
        "nobody was named for a slow NIC in a restless job, nearly sure, beside a rank of the same host",
    ),
    ("200249", "compound", "a congested way stayed what one of its ends receives, as one look had said"),
    ("90088", "", "nobody was named for a congested way that other stages wait for, whose rings were faster before"),
    ("88665", "", "a case began with an evaluation, seconds before its device was slow"),
    (
        "88838",
        "",
        "who receives nothing from a rank whose sends take hundreds of times as long was a proxy thread that pauses",
    ),
    ("89018", "", "a rank that computed longer for some iterations, while one fault ended and another began"),
    ("89398", "", "one rank of a host was named, which had straggled seconds before all of them were slow"),
    ("89656", "", "nobody was named for a congested way in a restless job that took 1.3 times as long"),
    ("89941", "", "the same of a slow copy in a tree"),
    ("24064", "", "the same, which accounted for 0.998 of what makes a job slow"),
    ("90568", "", "a loss in every fourth iteration, around an evaluation, was a slow job"),
    ("92111", "", "the same in a healthy job, and slow copies"),
    ("90662", "", "neighbours of a host whose device had just become slow were named before it"),
    ("82098", "", "nobody was named for a slow NIC behind a crowded host, whose iterations are few"),
    ("93318", "", "ways that hold data again what a congested one held in their stead were congested"),
    ("92659", "", "who waits in a tree for a device that computes longer was a slow copy"),
    ("92981", "", "the same for two hosts that others keep busy"),
    ("93816", "", "a slow NIC beside one that is known was the way to the other neighbour in its ring"),
    ("100188", "", "the same, again and again beside the right one"),
    (
        "100724",
        "",
        "nobody was named for copies so slow that a ring's operation never ends, at whose entry another rank sits",
    ),
    (
        "101426",
        "",
        "a device that straggled in two of three long iterations behind a crowded host had a case of its own",
    ),
    (
        "101755",
        "",
        "who waits in a tree for a rank whose sends take hundreds of times as long was a device that stopped",
    ),
    ("83585", "", "a slow copy in a tree was one whose parent is inside its own host, and who waits for that one"),
    ("101587", "", "the same, where both show as much"),
    ("94254", "", "who skipped a collective was a rank that waits until what it sent is taken"),
    ("94345", "", "a data loader behind a throttled device was a slow NIC, since an evaluation began the step"),
    (
        "101953",
        "",
        "a data loader was a copy somewhere, since one iteration in which others straggled came just before",
    ),
    (
        "101418",
        "",
        "a NIC on the wrong socket in a ring of 1,024 was the copy of a rank whose slots were full when it began",
    ),
    (
        "95287",
        "",
        "a NIC on the wrong socket at a leaf of a tree was the copy of a rank near the root that waits unseen",
    ),
    ("102202", "", "a congested way of a ring was as slow before as the messages of a pipeline beside it"),
    ("103054", "", "a way that is slow in every other iteration while a device is throttled was congested"),
    ("106485", "", "a host whose threads get no processor was nobody, since a third long iteration did not end"),
    ("106241", "", "slow sends of one rank in a tree were the copy of a rank near the root that waits unseen"),
    ("104718", "", "a device that is restless computed a third of what iterations took longer, and was named for it"),
    ("105685", "", "who left out a collective of a group of four, an iteration later, was any rank of a cycle"),
    ("95591", "", "a NIC slow next to a slow one was a congested way, since its messages were not slow by as much"),
];

/// Each part of the list is a test: they run side by side.
const PARTS: usize = 4;

fn stays_mended(part: usize) {
    let mut wrong = String::new();
    for (seed, family, before) in MENDED.iter().skip(part).step_by(PARTS) {
        let family = if family.is_empty() { vec![] } else { vec!["--family", *family] };
        // The largest take a minute on a small machine: the test runner's own limit ends them, not this.
        let said = mycroft(&[&["sim", "run", "--swarm", *seed][..], &family].concat()).output().unwrap();
        if said.status.code() != Some(0) {
            let [stdout, stderr] = [said.stdout, said.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
            wrong += &format!("seed {seed}, {}: once {before}\n{stdout}\n{stderr}\n", said.status);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn what_was_mended_stays_so_first_part() {
    stays_mended(0);
}

#[test]
fn what_was_mended_stays_so_second_part() {
    stays_mended(1);
}

#[test]
fn what_was_mended_stays_so_third_part() {
    stays_mended(2);
}

#[test]
fn what_was_mended_stays_so_fourth_part() {
    stays_mended(3);
}

/// Some rank or other computes twice as long in every iteration; one device has its power limited for a while.
const RESTLESS: &str = r#"
name = "restless"
hosts = 8
ranks_per_host = 8
tp = 2
dp = 32
pp = 1
algo = "tree"
micro_batches = 1
layers = 1
forward_ms = 137.0
backward_ms = 274.0
tp_bytes = 262144
dp_bytes = 15728640
nic_bytes_per_sec = 820000000
duration_s = 60.0
seed = 9198

[fault]
kind = "gpu-throttling"
host = 7
rank = 63
severity = 250.0
after_s = 20.0
lasts_s = 20.0

[cluster]
copy_bytes_per_sec = 16000000000
nvlink_bytes_per_sec = 6000000000

[life]
straggle_share = 0.04
straggle_factor = 2.0
sequence_imbalance = 0.08
"#;

/// No iteration says that it is over, so its suspect does.
#[test]
fn a_case_that_iterations_hide_is_closed_when_its_suspect_is_as_fast_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("restless.toml");
    std::fs::write(&file, RESTLESS).unwrap();
    let said = say(&["sim", "run", &file.display().to_string()]);
    assert_eq!(said.code, Some(0), "{}", said.stdout);
    for line in ["CASE 1 closed: slowdown / gpu", "rank 63 on host7", "closed     its suspect is as fast as before"] {
        assert!(said.stdout.contains(line), "{line}\n{}", said.stdout);
    }
    assert!(!said.stdout.contains("CASE 2"), "{}", said.stdout);
}

/// A proxy thread that sleeps before two of five steps: now and then nothing moves for seconds, and nobody is seen to hold it.
#[test]
fn a_rank_that_pauses_again_and_again_is_one_case() {
    let file = format!("{}/../../scenarios/proxy-delay-16.toml", env!("CARGO_MANIFEST_DIR"));
    let fault = ["--fault", "proxy-delay@host1:rank5,severity=40", "--seed", "2", "--duration", "150"];
    let said = say(&[&["sim", "run", &file][..], &fault].concat());
    assert_eq!(said.code, Some(0), "{}", said.stdout);
    assert!(said.stdout.contains("suspect    rank 5 on host1"), "{}", said.stdout);
    assert!(!said.stdout.contains("CASE 2"), "{}", said.stdout);
}
