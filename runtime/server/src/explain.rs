//! `spillgate explain`: every limit of a call and where it comes from; of a running server, where one answers, with what operators set
//! over the files.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use hyper::Method;
use serde_json::Value;
use spillgate_config::Plan;

use crate::call::{self, Asked};
use crate::commands::print_faults;
use crate::{cli, wiring};

/// The longest that a server is waited for.
const PATIENCE: Duration = Duration::from_secs(3);

/// A limit's name, its value, and where it comes from.
type Line = [String; 3];

/// Prints the limits; what they are those of goes to standard error.
pub(crate) fn run(options: &cli::Explain) -> anyhow::Result<ExitCode> {
    wiring::install_tls_provider();
    let plan = match spillgate_config::load(&options.config) {
        Ok(plan) => plan,
        Err(faults) => {
            print_faults(&faults, cli::Format::Text);
            return Ok(ExitCode::from(1));
        }
    };
    let url = options.url.clone().unwrap_or_else(|| url_of(plan.server.admin_listen));
    let lines = match call::read_key(&options.key) {
        // Nobody named a key: nobody is asked.
        Err(_) if options.key == cli::OPERATOR_KEY => {
            eprintln!(
                "spillgate: as the files say; SPILLGATE_ADMIN_KEY is not set, so no server was asked for what operators set over them"
            );
            of_files(&plan, options)
        }
        Err(error) => return Err(error),
        Ok(key) => match ask(&url, &key, options)? {
            Answer::None(why) => {
                eprintln!("spillgate: as the files say: {why:#}");
                of_files(&plan, options)
            }
            Answer::Said(status, body) => of_server(&plan, &url, status, &body),
        },
    };
    match lines {
        Ok(lines) => {
            print(&lines);
            Ok(ExitCode::SUCCESS)
        }
        Err(problem) => {
            eprintln!("spillgate: {problem}");
            Ok(ExitCode::from(1))
        }
    }
}

fn of_files(plan: &Plan, options: &cli::Explain) -> Result<Vec<Line>, String> {
    let lines = spillgate_config::explain(plan, &options.tenant, &options.flow).map_err(|problem| problem.to_string())?;
    Ok(lines.into_iter().map(|line| [line.name, line.value, line.origin.to_string()]).collect())
}

/// What a server came back with.
enum Answer {
    /// Nobody answers there.
    None(anyhow::Error),
    Said(u16, Value),
}

fn ask(url: &str, key: &str, options: &cli::Explain) -> anyhow::Result<Answer> {
    let base = url.trim_end_matches('/');
    let url = format!("{base}/admin/v1/tenants/{}/explain?flow={}", call::encode(&options.tenant), call::encode(&options.flow));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = call::client()?;
    let asked = Asked { method: Method::GET, url, headers: Vec::new(), body: None };
    Ok(runtime.block_on(async {
        match tokio::time::timeout(PATIENCE, call::send(&client, key, asked)).await {
            Ok(Ok((status, body))) => Answer::Said(status, serde_json::from_slice(&body).unwrap_or_default()),
            Ok(Err(error)) => Answer::None(error),
            Err(_) => Answer::None(anyhow::anyhow!("{base} does not answer within {} s", PATIENCE.as_secs())),
        }
    }))
}

fn of_server(plan: &Plan, url: &str, status: u16, body: &Value) -> Result<Vec<Line>, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if status != 200 {
        return Err(format!("the server at {url} answers {status}: {}", text(&body["detail"])));
    }
    let version = text(&body["version"]);
    if version == plan.version {
        eprintln!("spillgate: in force on the server at {url}");
    } else {
        eprintln!("spillgate: in force on the server at {url}, which runs version {version}; the files are version {}", plan.version);
    }
    let lines = body["limits"].as_array().into_iter().flatten();
    Ok(lines.map(|line| [text(&line["name"]), text(&line["value"]), text(&line["from"])]).collect())
}

/// Where a server with these files is asked: one that listens everywhere listens here.
fn url_of(listen: SocketAddr) -> String {
    let address = match listen.ip() {
        IpAddr::V4(any) if any.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(any) if any.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        address => address,
    };
    format!("http://{}", SocketAddr::new(address, listen.port()))
}

fn print(lines: &[Line]) {
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let (names, values) = (width(0), width(1));
    for [name, value, origin] in lines {
        println!("{name:names$}  {value:values$}  {origin}");
    }
}
