//! `mycroft watch`: the live view in the terminal: jobs, ranks by host, cases, and one case whole.
use crate::api::{Api, escaped, list};
use crate::args::WatchArgs;
use crate::cases;
use crate::{EXIT_FOUND, EXIT_OK};
use anyhow::{Context, Result, bail};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Wrap};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// How often the server is asked.
const REFRESH: Duration = Duration::from_millis(500);

/// What the view shows.
#[derive(Default)]
struct View {
    jobs: Vec<String>,
    job: usize,
    report: Value,
    /// Cases, newest first, as the report has them.
    cases: Vec<Value>,
    selected: usize,
    scroll: u16,
    trouble: Option<String>,
}

/// Shows the view until `q`; with `--once`, or without a terminal, prints one frame.
pub(crate) fn watch(args: &WatchArgs) -> Result<u8> {
    let api = Api::new(&args.server);
    let mut view = View::default();
    refresh(&api, &mut view, args.job.as_deref());
    if args.once || !std::io::stdout().is_terminal() {
        return once(&api, &view);
    }
    let mut terminal = ratatui::try_init().context("cannot open the terminal")?;
    let outcome = live(&mut terminal, &api, &mut view);
    ratatui::restore();
    outcome?;
    Ok(if any_open(&view) { EXIT_FOUND } else { EXIT_OK })
}

fn once(api: &Api, view: &View) -> Result<u8> {
    if let Some(trouble) = &view.trouble {
        bail!("{trouble}");
    }
    let Some(job) = view.jobs.get(view.job) else {
        println!("no job has reported yet");
        return Ok(EXIT_OK);
    };
    print!("{}", api.text(&format!("/api/v1/report?job={}&format=text", escaped(job)))?);
    Ok(if any_open(view) { EXIT_FOUND } else { EXIT_OK })
}

fn any_open(view: &View) -> bool {
    view.cases.iter().any(|case| case["state"] == "open")
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
                KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                KeyCode::Char('j') | KeyCode::Down => select(view, 1),
                KeyCode::Char('k') | KeyCode::Up => select(view, -1),
                KeyCode::PageDown | KeyCode::Char(' ') => view.scroll = view.scroll.saturating_add(5),
                KeyCode::PageUp => view.scroll = view.scroll.saturating_sub(5),
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

fn select(view: &mut View, by: isize) {
    let last = view.cases.len().saturating_sub(1);
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
    let jobs = api.json("/api/v1/jobs")?;
    view.jobs = list(&jobs, "jobs")
        .iter()
        .map(|job| cases::text(job.get("name").or_else(|| job.get("job")).unwrap_or(job)))
        .collect();
    if let Some(wanted) = wanted {
        view.job = view.jobs.iter().position(|job| job == wanted).unwrap_or(0);
    }
    view.job = view.job.min(view.jobs.len().saturating_sub(1));
    let Some(job) = view.jobs.get(view.job) else {
        view.report = Value::Null;
        view.cases.clear();
        return Ok(());
    };
    view.report = api.json(&format!("/api/v1/report?job={}", escaped(job)))?;
    view.cases = list(&view.report["cases"], "cases").iter().rev().cloned().collect();
    view.selected = view.selected.min(view.cases.len().saturating_sub(1));
    Ok(())
}

fn draw(frame: &mut Frame<'_>, view: &View) {
    let hosts = ranks_by_host(view);
    let rank_rows = u16::try_from(hosts.len()).unwrap_or(u16::MAX).clamp(1, 12) + 2;
    let case_rows = u16::try_from(view.cases.len()).unwrap_or(u16::MAX).clamp(1, 6) + 2;
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
    let keys = " q quit   tab next job   up/down case   space scroll ";
    frame.render_widget(Paragraph::new(keys).style(Style::new().add_modifier(Modifier::DIM)), foot);
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let job = view.jobs.get(view.job).map_or("no job has reported yet", String::as_str);
    let iterations = cases::text(&view.report["iterations"]);
    let median = view.report["iteration_ms_median"].as_f64();
    let mut spans = vec![
        Span::styled(" mycroft ", Style::new().add_modifier(Modifier::REVERSED)),
        Span::raw(format!("  job {job}   iteration {iterations}")),
    ];
    if let Some(median) = median {
        spans.push(Span::raw(format!("   median {median:.0} ms")));
    }
    spans.push(if any_open(view) {
        Span::styled("   case open", Style::new().fg(Color::Red).add_modifier(Modifier::BOLD))
    } else {
        Span::styled("   healthy", Style::new().fg(Color::Green))
    });
    if let Some(trouble) = &view.trouble {
        spans.push(Span::styled(format!("   {trouble}"), Style::new().fg(Color::Yellow)));
    }
    frame.render_widget(Line::from(spans), area);
}

/// Host name to its ranks as (rank, state, accused).
fn ranks_by_host(view: &View) -> BTreeMap<String, Vec<(u64, String, bool)>> {
    let accused: Vec<&Value> = view
        .cases
        .iter()
        .filter(|case| case["state"] == "open")
        .flat_map(|case| list(&case["suspects"], "suspects"))
        .collect();
    let mut hosts: BTreeMap<String, Vec<(u64, String, bool)>> = BTreeMap::new();
    for rank in list(&view.report["ranks"], "ranks") {
        let host = rank["host"].as_str().unwrap_or("?").to_owned();
        let number = rank["rank"].as_u64().unwrap_or(u64::MAX);
        let is_accused = accused.iter().any(|suspect| match suspect["rank"].as_u64() {
            Some(accused) => accused == number,
            None => suspect["host"].as_str() == Some(host.as_str()),
        });
        let state = rank["state"].as_str().unwrap_or("unknown").to_owned();
        hosts.entry(host).or_default().push((number, state, is_accused));
    }
    hosts
}

fn draw_ranks(frame: &mut Frame<'_>, area: Rect, hosts: &BTreeMap<String, Vec<(u64, String, bool)>>) {
    let lines: Vec<Line<'_>> = hosts
        .iter()
        .map(|(host, ranks)| {
            let mut spans = vec![Span::raw(format!(" {host:<16} "))];
            for (rank, state, accused) in ranks {
                let color = match state.as_str() {
                    "running" | "idle" => Color::Green,
                    "waiting" => Color::Yellow,
                    "dead" | "stopped" => Color::Red,
                    "exited" => Color::DarkGray,
                    _ => Color::Gray,
                };
                let mut style = Style::new().fg(color);
                if *accused {
                    style = Style::new().fg(Color::White).bg(Color::Red).add_modifier(Modifier::BOLD);
                }
                spans.push(Span::styled(format!("{rank:>5}"), style));
                spans.push(Span::raw(" "));
            }
            Line::from(spans)
        })
        .collect();
    let block = Block::bordered().title(" ranks: running green, waiting yellow, dead red, blamed on red ");
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn draw_cases(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let lines: Vec<Line<'_>> = view
        .cases
        .iter()
        .enumerate()
        .map(|(index, case)| {
            let mut style =
                if case["state"] == "open" { Style::new().fg(Color::Red) } else { Style::new().fg(Color::Gray) };
            if index == view.selected {
                style = style.add_modifier(Modifier::REVERSED);
            }
            Line::styled(format!(" {}", cases::line(case)), style)
        })
        .collect();
    let body = if lines.is_empty() { vec![Line::raw(" none")] } else { lines };
    frame.render_widget(Paragraph::new(body).block(Block::bordered().title(" cases ")), area);
}

fn draw_detail(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let text = view.cases.get(view.selected).map(cases::whole).unwrap_or_default();
    let block = Block::bordered().title(" why ");
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }).scroll((view.scroll, 0)).block(block), area);
}
