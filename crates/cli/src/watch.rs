//! `mycroft watch`: the live view in the terminal: jobs, ranks by host, cases; and whole: one case, all ranks.
mod ranks;

use crate::api::{Api, escaped};
use crate::args::WatchArgs;
use crate::exit::{EXIT_FOUND, EXIT_OK};
use crate::keys::draw_keys;
use crate::told::{self, is_open};
use anyhow::{Context, Result, bail};
use mycroft_record::HostTime;
use mycroft_record::text::printable;
use mycroft_serve::api::{JobsJson, RankJson, ReportJson};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Wrap};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// How often the server is asked.
const REFRESH: Duration = Duration::from_millis(500);
/// Lines of a page up or down.
const PAGE_LINES: i16 = 10;

/// What fills the screen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Page {
    /// The job: ranks by host, cases, why.
    #[default]
    Job,
    /// The chosen case.
    Case,
    /// All ranks, one a line.
    Ranks,
}

/// What the view shows.
#[derive(Default)]
struct View {
    page: Page,
    jobs: Vec<String>,
    job: usize,
    /// Of the chosen job, its cases newest first.
    report: Option<ReportJson>,
    selected: usize,
    scroll: u16,
    trouble: Option<String>,
}

impl View {
    fn cases(&self) -> &[mycroft_serve::api::CaseJson] {
        self.report.as_ref().map_or(&[], |report| &report.cases)
    }

    /// The server's clock when it made the report.
    fn now(&self) -> HostTime {
        self.report.as_ref().map_or(HostTime::NONE, |report| HostTime(report.as_of.ns))
    }

    fn any_open(&self) -> bool {
        self.cases().iter().any(is_open)
    }

    fn exit_code(&self) -> u8 {
        if self.any_open() { EXIT_FOUND } else { EXIT_OK }
    }
}

/// Shows the view until `q`; with `--once`, or without a terminal, prints one frame.
pub(crate) fn watch(args: &WatchArgs) -> Result<u8> {
    let api = Api::new(&args.server)?;
    let mut view = View::default();
    refresh(&api, &mut view, args.job.as_deref());
    if args.once || !std::io::stdout().is_terminal() {
        return once(&api, &view);
    }
    let mut terminal = ratatui::try_init().context("cannot open the terminal")?;
    let outcome = live(&mut terminal, &api, &mut view);
    ratatui::restore();
    outcome?;
    Ok(view.exit_code())
}

fn once(api: &Api, view: &View) -> Result<u8> {
    if let Some(trouble) = &view.trouble {
        bail!("{trouble}");
    }
    let Some(job) = view.jobs.get(view.job) else {
        told::print("no job has reported yet\n")?;
        return Ok(EXIT_OK);
    };
    let text = api.text(&format!("/api/v1/report?job={}&format=text", escaped(job)))?;
    told::print(&told::lines(&text))?;
    Ok(view.exit_code())
}

fn live(terminal: &mut ratatui::DefaultTerminal, api: &Api, view: &mut View) -> Result<()> {
    let mut asked = Instant::now();
    loop {
        terminal.draw(|frame| draw(frame, view))?;
        let wait = REFRESH.saturating_sub(asked.elapsed());
        if event::poll(wait)?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            match key.code {
                KeyCode::Char('q') => return Ok(()),
                KeyCode::Esc | KeyCode::Backspace if view.page != Page::Job => turn(view, Page::Job),
                KeyCode::Esc => return Ok(()),
                KeyCode::Enter if view.page == Page::Case || view.cases().is_empty() => turn(view, Page::Ranks),
                KeyCode::Enter => turn(view, Page::Case),
                KeyCode::Char('r') => turn(view, Page::Ranks),
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                KeyCode::Char('j') | KeyCode::Down if view.page == Page::Ranks => scroll(view, 1),
                KeyCode::Char('k') | KeyCode::Up if view.page == Page::Ranks => scroll(view, -1),
                KeyCode::Char('j') | KeyCode::Down => select(view, 1),
                KeyCode::Char('k') | KeyCode::Up => select(view, -1),
                KeyCode::PageDown | KeyCode::Char(' ') => scroll(view, PAGE_LINES),
                KeyCode::PageUp => scroll(view, -PAGE_LINES),
                KeyCode::Tab if !view.jobs.is_empty() => {
                    view.job = (view.job + 1) % view.jobs.len();
                    refresh(api, view, None);
                }
                _ => {}
            }
        }
        if asked.elapsed() >= REFRESH {
            refresh(api, view, None);
            asked = Instant::now();
        }
    }
}

fn turn(view: &mut View, page: Page) {
    (view.page, view.scroll) = (page, 0);
}

/// By so many lines; not beyond the last rank. How long a case is, only the terminal knows.
fn scroll(view: &mut View, by: i16) {
    let ranks = view.report.as_ref().map_or(0, |report| report.ranks.len()).saturating_sub(1);
    let last = if view.page == Page::Ranks { u16::try_from(ranks).unwrap_or(u16::MAX) } else { u16::MAX };
    view.scroll = view.scroll.saturating_add_signed(by).min(last);
}

fn select(view: &mut View, by: isize) {
    let last = view.cases().len().saturating_sub(1);
    view.selected = view.selected.saturating_add_signed(by).min(last);
    view.scroll = 0;
}

/// Asks the server for its jobs and the report of the chosen one; trouble is shown, not fatal.
fn refresh(api: &Api, view: &mut View, wanted: Option<&str>) {
    match load(api, view, wanted) {
        Ok(()) => view.trouble = None,
        Err(error) => view.trouble = Some(format!("{error:#}")),
    }
}

fn load(api: &Api, view: &mut View, wanted: Option<&str>) -> Result<()> {
    let jobs: JobsJson = api.get("/api/v1/jobs")?;
    view.jobs = jobs.jobs.into_iter().map(|job| job.name).collect();
    if let Some(wanted) = wanted {
        view.job = view.jobs.iter().position(|job| job == wanted).unwrap_or(0);
    }
    view.job = view.job.min(view.jobs.len().saturating_sub(1));
    view.report = None;
    if let Some(job) = view.jobs.get(view.job) {
        let mut report: ReportJson = api.get(&format!("/api/v1/report?job={}", escaped(job)))?;
        report.cases.reverse();
        view.report = Some(report);
    }
    view.selected = view.selected.min(view.cases().len().saturating_sub(1));
    Ok(())
}

fn draw(frame: &mut Frame<'_>, view: &View) {
    match view.page {
        Page::Job => draw_job(frame, view),
        Page::Case | Page::Ranks => {
            let areas = [Constraint::Length(1), Constraint::Min(3), Constraint::Length(1)];
            let [head, whole, foot] = Layout::vertical(areas).areas(frame.area());
            draw_head(frame, head, view);
            if view.page == Page::Case {
                draw_detail(frame, whole, view)
            } else {
                draw_each(frame, whole, view)
            }
            draw_keys(frame, foot, " q quit   esc back   enter or r ranks   up/down   space page ");
        }
    }
}

/// All ranks, one a line.
fn draw_each(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let Some(report) = &view.report else { return };
    let blamed = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
    let line = |(text, is_blamed)| Line::styled(text, if is_blamed { blamed } else { Style::new() });
    let lines = ranks::lines(report, |rank| is_blamed(view, rank)).into_iter().skip(view.scroll.into()).map(line);
    let head = Line::styled(ranks::HEAD, Style::new().add_modifier(Modifier::DIM));
    let title = match report.more_ranks {
        0 => format!(" {} ranks, ! is blamed ", report.ranks.len()),
        more => format!(" {} ranks and {more} that the server did not send, ! is blamed ", report.ranks.len()),
    };
    let body: Vec<Line<'_>> = std::iter::once(head).chain(lines).take(area.height.into()).collect();
    frame.render_widget(Paragraph::new(body).block(Block::bordered().title(title)), area);
}

fn draw_job(frame: &mut Frame<'_>, view: &View) {
    let hosts = ranks_by_host(view);
    let rank_rows = u16::try_from(hosts.len()).unwrap_or(u16::MAX).clamp(1, 12) + 2;
    let case_rows = u16::try_from(view.cases().len()).unwrap_or(u16::MAX).clamp(1, 6) + 2;
    let [head, ranks, cases, detail, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(rank_rows),
        Constraint::Length(case_rows),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_head(frame, head, view);
    draw_ranks(frame, ranks, &hosts);
    draw_cases(frame, cases, view);
    draw_detail(frame, detail, view);
    draw_keys(frame, foot, " q quit   tab next job   up/down case   enter case   r ranks   space scroll ");
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let job = view.jobs.get(view.job).map_or("no job has reported yet".into(), |job| printable(job));
    let mut spans = vec![Span::styled(" mycroft ", Style::new().add_modifier(Modifier::REVERSED))];
    spans.push(Span::raw(format!("  job {job}")));
    if let Some(report) = &view.report {
        spans.push(Span::raw(format!("   iteration {}", report.iterations)));
        spans.extend(report.iteration_ms_median.map(|ms| Span::raw(format!("   median {ms:.0} ms"))));
    }
    spans.push(if view.any_open() {
        Span::styled("   case open", Style::new().fg(Color::Red).add_modifier(Modifier::BOLD))
    } else {
        Span::styled("   no open case", Style::new().fg(Color::Green))
    });
    for split in view.report.iter().flat_map(|report| &report.layout) {
        spans.push(Span::raw(format!("   {} {}", split.of.trim_end_matches(" parallel"), split.ranks)));
    }
    if let Some(trouble) = &view.trouble {
        spans.push(Span::styled(format!("   {trouble}"), Style::new().fg(Color::Yellow)));
    }
    frame.render_widget(Line::from(spans), area);
}

/// Ranks of one host that do the same: what, whether they are blamed, and which.
type Alike = BTreeMap<(String, bool), Vec<String>>;

/// Whether an open case names a rank, or its host.
fn is_blamed(view: &View, rank: &RankJson) -> bool {
    let open = view.cases().iter().filter(|case| is_open(case));
    let is = |suspect: &mycroft_serve::api::SuspectJson| match suspect.kind.as_str() {
        "rank" => suspect.rank.is_some() && suspect.rank == rank.rank,
        "host" => suspect.host.as_deref() == Some(rank.host.as_str()),
        _ => false,
    };
    open.flat_map(|case| &case.suspects).any(is)
}

/// The ranks of each host, by what they do.
fn ranks_by_host(view: &View) -> BTreeMap<String, Alike> {
    let mut hosts: BTreeMap<String, Alike> = BTreeMap::new();
    for rank in view.report.iter().flat_map(|report| &report.ranks) {
        let number = rank.rank.map_or("?".to_owned(), |number| number.to_string());
        let state = printable(&rank.state).into_owned();
        let alike = hosts.entry(printable(&rank.host).into_owned()).or_default();
        alike.entry((state, is_blamed(view, rank))).or_default().push(number);
    }
    hosts
}

/// `host0  running 0 1 2   BLAMED, waiting 3`: words first, colours besides.
fn rank_line(host: &str, alike: &Alike) -> Line<'static> {
    let mut spans = vec![Span::raw(format!(" {host:<16} "))];
    for ((state, is_blamed), ranks) in alike {
        let color = match state.as_str() {
            "running" | "idle" => Color::Green,
            "waiting" => Color::Yellow,
            "dead" | "stopped" => Color::Red,
            "exited" => Color::DarkGray,
            _ => Color::Gray,
        };
        let (mut style, mut word) = (Style::new().fg(color), state.clone());
        if *is_blamed {
            style = Style::new().fg(Color::White).bg(Color::Red).add_modifier(Modifier::BOLD);
            word = format!("BLAMED, {state}");
        }
        spans.push(Span::styled(format!("{word} {}", ranks.join(" ")), style));
        spans.push(Span::raw("   "));
    }
    Line::from(spans)
}

fn draw_ranks(frame: &mut Frame<'_>, area: Rect, hosts: &BTreeMap<String, Alike>) {
    let lines: Vec<Line<'_>> = hosts.iter().map(|(host, alike)| rank_line(host, alike)).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" ranks ")), area);
}

fn draw_cases(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let line = |(index, case)| {
        let mut style = Style::new().fg(if is_open(case) { Color::Red } else { Color::Gray });
        if index == view.selected {
            style = style.add_modifier(Modifier::REVERSED);
        }
        Line::styled(format!(" {}", told::line(case, view.now())), style)
    };
    let lines: Vec<Line<'_>> = view.cases().iter().enumerate().map(line).collect();
    let body = if lines.is_empty() { vec![Line::raw(" none")] } else { lines };
    frame.render_widget(Paragraph::new(body).block(Block::bordered().title(" cases ")), area);
}

fn draw_detail(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let text = view.cases().get(view.selected).map(|case| told::whole(case, view.now())).unwrap_or_default();
    let block = Block::bordered().title(" why ");
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }).scroll((view.scroll, 0)).block(block), area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn view() -> View {
        let case = include_str!("../../serve/src/tests/case_row_v0_1.json").replacen("stale", "open", 1);
        let rank = |rank: u32, state: &str| {
            format!(
                r#"{{"rank":{rank},"host":"host{}","pid":1,"iterations":1,"iteration_ms":null,"in_flight":0,
                "last_progress_at":null,"last_seen_at":null,"state":"{state}","doing":"","lost":0}}"#,
                rank / 2
            )
        };
        let (first, others) = (rank(1, "waiting"), [rank(0, "running"), rank(2, "dead")].join(","));
        let report = format!(
            r#"{{"job":"a\u001b[2J","as_of":{{"ns":1735689611000000000,"text":""}},"cases":[{case}],"transients":[],
            "lives":[],"caveats":[],"ranks":[{first},{others}],"more_ranks":0,"iteration_ms_median":412.0,
            "iterations":9,"thresholds":[],"layout":[{{"of":"tensor parallel","ranks":8,"apart":1,"groups":2}}]}}"#
        );
        let report = serde_json::from_str(&report).expect("a report");
        View { jobs: vec!["a\x1b[2J".into()], report: Some(report), ..View::default() }
    }

    fn drawn(view: &View) -> String {
        let mut terminal = Terminal::new(TestBackend::new(140, 40)).expect("a terminal");
        terminal.draw(|frame| draw(frame, view)).expect("drawn");
        let cells = terminal.backend().buffer().content().chunks(140);
        let rows = cells.map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>());
        rows.collect::<Vec<String>>().join("\n")
    }

    #[test]
    fn a_case_and_the_ranks_fill_the_screen_and_lead_back() {
        let mut view = view();
        turn(&mut view, Page::Case);
        let case = drawn(&view);
        assert!(case.contains("suspect    link host1 -> host0 (25 %)") && !case.contains(" cases "), "{case}");
        turn(&mut view, Page::Ranks);
        let ranks = drawn(&view);
        assert!(ranks.contains("median 412 ms   case open   tensor 8"), "{ranks}");
        let order = [
            "!1       host0             waiting",
            "!2       host1             dead",
            " 0       host0             running",
        ];
        let places: Vec<Option<usize>> = order.iter().map(|wanted| ranks.find(wanted)).collect();
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "blamed ones first: {places:?}\n{ranks}");
        scroll(&mut view, 100);
        assert_eq!(view.scroll, 2, "the last rank stays");
        assert!(drawn(&view).contains(order[2]) && !drawn(&view).contains(order[0]));
        turn(&mut view, Page::Job);
        assert!(drawn(&view).contains(" cases "));
    }

    #[test]
    fn the_view_tells_states_and_blame_in_words_and_times_with_ages() {
        let text = drawn(&view());
        for wanted in [
            "host0            running 0   BLAMED, waiting 1",
            "host1            BLAMED, dead 2",
            "7    open      hang",
            "2024-12-31 23:59:59 UTC, 12 s ago",
            "suspect    link host1 -> host0 (25 %)",
            "job a\\u{1b}[2J",
        ] {
            assert!(text.contains(wanted), "no {wanted:?} in\n{text}");
        }
    }
}
