//! Promise 8: a value is exact or the call fails, on every database and whatever the host's time zone.
//!
//! The server runs as if in New York, where 2026-03-08 02:30 does not exist on the wall clock.

use spillgate_test_support::postgres;
use spillgate_test_support::server::{Options, Server};

const TENANT: &str = "[tenant.reader]\nkeys = [\"reader-key-1\"]\n";

fn serve(databases: &str, flows: &[(&str, &str)]) -> Server {
    let server = format!("{TENANT}{databases}");
    Server::start(&Options { binary: env!("CARGO_BIN_EXE_spillgate"), server: &server, flows, environment: &[("TZ", "America/New_York")] })
}

fn postgres_database() -> String {
    let url = postgres::shared().url();
    format!("[database.main]\ndriver = \"postgres\"\nconnection = \"{url}\"\n")
}

const SQLITE: &str = "[database.main]\ndriver = \"sqlite\"\nconnection = \"{folder}/main.db\"\naccess = \"read-write\"\n";

fn flow(name: &str, sql: &str, more: &str) -> String {
    format!(
        "name = \"{name}\"\nabout = \"Values.\"\nhttp = \"GET /{name}\"\neffect = \"read\"\n{more}\n[[step]]\nname = \"values\"\ndatabase = \"main\"\nsql = \"\"\"{sql}\"\"\"\n"
    )
}

const LARGE: &str = "SELECT CAST(9007199254740993 AS BIGINT) AS above, CAST(-7000000000000000001 AS BIGINT) AS below, CAST(9007199254740991 AS BIGINT) AS safe, '12e3' AS looks_like_a_number, '007' AS agent";

/// What the reply must hold for [`LARGE`].
fn assert_large(server: &Server) {
    let reply = server.get("reader-key-1", "/api/large");
    assert_eq!(reply.status, 200, "{reply:?}");
    let expected =
        r#"{"above":"9007199254740993","below":"-7000000000000000001","safe":9007199254740991,"looks_like_a_number":"12e3","agent":"007"}"#;
    assert!(reply.body.contains(expected), "{}", reply.body);
    let document = server.get("reader-key-1", "/openapi.json");
    assert!(document.body.contains("9007199254740991"), "the document says where numbers become text");
}

#[test]
fn c1_integers_beyond_two_to_the_53rd_stay_exact_and_text_that_looks_like_a_number_stays_text_on_postgres() {
    let columns =
        "columns = { above = \"integer\", below = \"integer\", safe = \"integer\", looks_like_a_number = \"text\", agent = \"text\" }\n";
    assert_large(&serve(&postgres_database(), &[("large.toml", &(flow("large", LARGE, "") + columns))]));
}

#[test]
fn c1_integers_beyond_two_to_the_53rd_stay_exact_and_text_that_looks_like_a_number_stays_text_on_sqlite() {
    let columns =
        "columns = { above = \"integer\", below = \"integer\", safe = \"integer\", looks_like_a_number = \"text\", agent = \"text\" }\n";
    let server = serve(SQLITE, &[("large.toml", &(flow("large", LARGE, "") + columns))]);
    make_sqlite(&server);
    assert_large(&server);
}

/// The file must exist before it can be read: nothing is made by a read.
fn make_sqlite(server: &Server) {
    let connection = rusqlite::Connection::open(server.folder.join("main.db")).expect("a database file");
    connection.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (a INTEGER, b TEXT)").expect("a table");
}

const ECHO: &str = "SELECT CAST(:number AS BIGINT) AS number, CAST(:word AS TEXT) AS word, CAST(:count AS BIGINT) AS count";
const ECHO_INPUTS: &str = "[input.number]\ntype = \"integer\"\nrequired = false\nabout = \"A number.\"\n[input.word]\ntype = \"text\"\nrequired = false\nabout = \"A word.\"\n[input.count]\ntype = \"integer\"\ndefault = 0\nabout = \"With a default.\"\n";

#[test]
fn c2_omitted_null_and_the_word_null_are_three_things() {
    let text = flow("echo", ECHO, ECHO_INPUTS).replace("GET /echo", "POST /echo");
    let server = serve(&postgres_database(), &[("echo.toml", &text)]);
    for (body, expected) in [
        ("{}", r#"{"number":null,"word":null,"count":0}"#),
        (r#"{"number":null,"word":null}"#, r#"{"number":null,"word":null,"count":0}"#),
        (r#"{"count":null}"#, r#"{"number":null,"word":null,"count":null}"#),
        (r#"{"word":"null"}"#, r#"{"number":null,"word":"null","count":0}"#),
        (r#"{"number":9007199254740993,"word":"12e3","count":"7"}"#, r#"{"number":"9007199254740993","word":"12e3","count":7}"#),
    ] {
        let reply = server.post("reader-key-1", "/api/echo", body);
        assert_eq!(reply.status, 200, "{body}: {reply:?}");
        assert!(reply.body.contains(expected), "{body}: {}", reply.body);
    }
    for (body, fields) in [
        (r#"{"number":"null"}"#, vec!["number"]),
        (r#"{"number":1.5,"word":7,"count":true}"#, vec!["number", "word", "count"]),
        (r#"{"number":1e3}"#, vec!["number"]),
        (r#"{"number":9223372036854775808}"#, vec!["number"]),
        (r#"{"numbr":1}"#, vec!["numbr"]),
    ] {
        let reply = server.post("reader-key-1", "/api/echo", body);
        assert_eq!((reply.status, reply.code().as_str()), (400, "invalid_input"), "{body}");
        let named: Vec<String> = reply.json()["errors"]
            .as_array()
            .expect("each field")
            .iter()
            .map(|error| error["field"].as_str().expect("a name").to_owned())
            .collect();
        assert_eq!(named.len(), fields.len(), "{body}: {named:?}");
        assert!(fields.iter().all(|field| named.iter().any(|name| name == field)), "{body}: {named:?}");
    }
}

#[test]
fn c3_a_value_never_becomes_part_of_a_statement() {
    for (name, database) in [("injection", postgres_database()), ("injection", SQLITE.to_owned())] {
        let text = flow(name, "SELECT :word AS word WHERE 1 = 1", "[input.word]\ntype = \"text\"\nabout = \"A word.\"\n");
        let text = text.replace("SELECT :word", "SELECT CAST(:word AS TEXT)");
        let server = serve(&database, &[("injection.toml", &text)]);
        if database == SQLITE {
            make_sqlite(&server);
        }
        for hostile in
            ["x%22%20WHERE%201=0%20UNION%20SELECT%20v%20FROM%20vault%20--", "x'%20OR%20'1'='1", "x%5D;%20DROP%20TABLE%20t;--", "x%60%20--"]
        {
            let reply = server.get("reader-key-1", &format!("/api/injection?word={hostile}"));
            assert_eq!(reply.status, 200, "{reply:?}");
            let word = reply.json()["rows"][0]["word"].as_str().expect("text").to_owned();
            assert!(word.starts_with('x') && word.len() > 3 && reply.json()["row_count"] == 1, "{word}");
        }
    }
}

#[test]
fn c3_a_parameter_where_a_table_name_stands_is_refused_when_the_file_is_read() {
    let folder = spillgate_test_support::server::folder("table-name");
    std::fs::create_dir_all(folder.join("flows")).expect("a folder");
    let input = "[input.tbl]\ntype = \"text\"\nabout = \"A table.\"\n";
    std::fs::write(folder.join("server.toml"), format!("[server]\n{TENANT}{}", SQLITE.replace("{folder}/", ""))).expect("written");
    std::fs::write(folder.join("flows/t.toml"), flow("t", "SELECT a FROM :tbl", input)).expect("written");
    let checked = std::process::Command::new(env!("CARGO_BIN_EXE_spillgate"))
        .args(["check", "--config"])
        .arg(folder.join("server.toml"))
        .output()
        .expect("check runs");
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert_eq!(checked.status.code(), Some(1), "{said}");
    assert!(said.contains("t.toml:") && said.contains("tbl"), "{said}");
    std::fs::remove_dir_all(&folder).expect("cleaned");
}

#[test]
fn c6_wall_times_keep_their_digits_and_only_zoned_ones_have_an_offset() {
    let sql = "SELECT TIMESTAMP '2026-03-08 02:30:00' AS wall, DATE '2026-03-08' AS day, TIMESTAMPTZ '2026-03-08 02:30:00+00' AS zoned, TIMESTAMP '2026-03-08 02:30:00.123456' AS fine";
    let server = serve(&postgres_database(), &[("times.toml", &flow("times", sql, ""))]);
    let row = server.get("reader-key-1", "/api/times").json()["rows"][0].clone();
    assert_eq!(row["wall"], "2026-03-08T02:30:00");
    assert_eq!(row["day"], "2026-03-08");
    assert_eq!(row["fine"], "2026-03-08T02:30:00.123456");
    assert_eq!(row["zoned"], "2026-03-08T02:30:00+00:00", "an explicit offset, the same under every time zone");
}

#[test]
fn c6_wall_times_keep_their_digits_on_sqlite() {
    let sql = "SELECT '2026-03-08 02:30:00' AS wall, '2026-03-08' AS day";
    let text = flow("times", sql, "") + "columns = { wall = \"timestamp\", day = \"date\" }\n";
    let server = serve(SQLITE, &[("times.toml", &text)]);
    make_sqlite(&server);
    let row = server.get("reader-key-1", "/api/times").json()["rows"][0].clone();
    assert_eq!((row["wall"].as_str(), row["day"].as_str()), (Some("2026-03-08T02:30:00"), Some("2026-03-08")));
}

const FIVE_MILLION: &str =
    "WITH RECURSIVE counted (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < :total) SELECT n FROM counted";

/// Cap 150 on exactly 150, on 151 and on five million rows, with the one seat free again at once.
fn assert_capped(server: &Server) {
    let before = server.settled_bytes();
    for (total, truncated) in [(150, false), (151, true), (5_000_000, true)] {
        let reply = server.get("reader-key-1", &format!("/api/many?total={total}")).json();
        assert_eq!((&reply["row_count"], &reply["truncated"]), (&150.into(), &truncated.into()), "of {total}");
        assert_eq!(reply["rows"].as_array().map(Vec::len), Some(150));
        assert_eq!(server.get("reader-key-1", "/api/many?total=1").json()["row_count"], 1, "the one seat is free");
    }
    let grown = server.resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "memory stays flat, it grew by {grown} bytes");
}

#[test]
fn c5_a_row_cap_is_told_and_costs_no_memory_on_postgres() {
    let sql = "SELECT n FROM generate_series(1, CAST(:total AS BIGINT)) AS n";
    let input = "[input.total]\ntype = \"integer\"\nabout = \"Rows.\"\n";
    let database = postgres_database() + "pool = { max = 1 }\n";
    assert_capped(&serve(&database, &[("many.toml", &(flow("many", sql, input) + "max_rows = 150\n"))]));
}

#[test]
fn c5_a_row_cap_is_told_and_costs_no_memory_on_sqlite() {
    let input = "[input.total]\ntype = \"integer\"\nabout = \"Rows.\"\n";
    let database = SQLITE.to_owned() + "pool = { max = 1 }\n";
    let server = serve(&database, &[("many.toml", &(flow("many", FIVE_MILLION, input) + "max_rows = 150\n"))]);
    make_sqlite(&server);
    assert_capped(&server);
}
