//! Golden files: every file of `faults/` with the faults it must give. `SPILLGATE_BLESS=1` writes the texts anew.
//!
//! A case holds several files, each headed by `#--- PATH`. The environment has `SECRET` (which no fault may show).

use std::path::{Path, PathBuf};

use spillgate_config::load_from;
use spillgate_config::source::Memory;

const SECRET: &str = "s3cr3t-of-this-test";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults")
}

fn source(case: &str) -> Memory {
    let mut source = Memory::default().variable("SECRET", SECRET).file("secret.txt", format!("{SECRET}\n")).file("empty.txt", "\n");
    for part in case.split("#--- ").skip(1) {
        let (path, text) = part.split_once('\n').expect("a path ends its line");
        source = source.file(path.trim(), text);
    }
    source
}

fn faults(case: &str) -> String {
    let faults = load_from(&source(case), Path::new("server.toml")).expect_err("every case has faults");
    faults.iter().map(|fault| format!("{fault}\n")).collect()
}

#[test]
fn every_fault_is_found_at_its_place_in_plain_words() {
    let mut wrong = Vec::new();
    let mut cases = 0;
    for entry in std::fs::read_dir(folder()).expect("the cases are there").flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        cases += 1;
        let found = faults(&std::fs::read_to_string(&path).expect("a case can be read"));
        assert!(!found.contains(SECRET), "{} shows a secret:\n{found}", path.display());
        let golden = path.with_extension("txt");
        if std::env::var_os("SPILLGATE_BLESS").is_some() {
            std::fs::write(&golden, &found).expect("a golden file can be written");
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        if found != expected {
            wrong.push(format!("{}\n--- expected\n{expected}--- found\n{found}", path.display()));
        }
    }
    assert!(cases >= 10, "found {cases} cases");
    assert!(wrong.is_empty(), "SPILLGATE_BLESS=1 accepts what is found:\n{}", wrong.join("\n"));
}

#[test]
fn c9_one_broken_file_hides_nothing_in_the_others() {
    let case = "#--- server.toml\n[server]\nlisten = 1\n#--- flows/a.toml\nname = \n#--- flows/b.toml\nname = \"b\"\ncolour = 1\n";
    let files: Vec<_> = load_from(&source(case), Path::new("server.toml"))
        .expect_err("all three are broken")
        .into_iter()
        .map(|fault| fault.file.display().to_string())
        .collect();
    for file in ["server.toml", "flows/a.toml", "flows/b.toml"] {
        assert!(files.iter().any(|found| found == file), "{file} in {files:?}");
    }
}

#[test]
fn faults_are_json_for_programs() {
    let faults = load_from(&source("#--- server.toml\n[server]\nlissten = 1\n"), Path::new("server.toml")).expect_err("a fault");
    let json = serde_json::to_value(faults.last().expect("a fault")).expect("faults serialise");
    assert_eq!(json["file"], "server.toml");
    assert_eq!((json["line"].as_u64(), json["column"].as_u64()), (Some(2), Some(1)));
    assert!(json["message"].as_str().is_some_and(|message| message.contains("did you mean `listen`?")));
}

#[test]
fn c10_no_fault_of_any_key_shows_a_secret() {
    // A secret written where a key has another form, and one of the wrong form where a secret belongs.
    for text in [
        "[database.x]\ndriver = \"sqlite\"\nconnection = [\"s3cr3t-of-this-test\"]\n",
        "[tenant.x]\nkeys = \"s3cr3t-of-this-test\"\n",
        "tenant = \"s3cr3t-of-this-test\"\n",
        "[tenant]\nkeys = [\"s3cr3t-of-this-test\"]\n",
        "[tenant.x]\nkeys = [{ key = \"s3cr3t-of-this-test\" }]\n",
        "[tenant.x]\nkeys = [\"s3cr3t-of-this-test\n",
        "[tenant.x]\nkeys = [s3cr3t-of-this-test]\n",
    ] {
        let shown = faults(&format!("#--- server.toml\n{text}#--- flows/a.toml\n"));
        assert!(!shown.contains(SECRET), "{shown}");
    }
}
