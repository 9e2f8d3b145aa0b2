//! From a driver's diagnostics to what the engine must do and what a caller may read.

use spillgate_connector::{Blame, DatabaseError, Failure, Scrub};

use crate::driver::{Diagnostics, NOT_SENT};

/// Where a failure met us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum While {
    Connecting,
    Running,
}

/// The failure of a call.
pub(crate) fn failure(diagnostics: &Diagnostics, during: While, scrub: &Scrub) -> DatabaseError {
    let state = diagnostics.state();
    let failure = classify(diagnostics, during);
    let detail = match &failure {
        Failure::Unreachable if login_refused(diagnostics) => "the database refused the login".to_owned(),
        Failure::Unreachable => "the database cannot be reached".to_owned(),
        Failure::LinkLost => "the connection to the database was lost".to_owned(),
        Failure::Passing => format!("the database is busy with others: a lock, a deadlock or too many connections (SQLSTATE {state})"),
        Failure::Ended => format!("the database ended the statement: its time was over, or an operator ended it (SQLSTATE {state})"),
        Failure::NoTransactions => "the table is not under commitment control, so it cannot be written in a transaction".to_owned(),
        Failure::Unfit => "the ODBC driver cannot be used".to_owned(),
        _ => format!("{} (SQLSTATE {state})", refusal(state)),
    };
    let words: Vec<String> =
        diagnostics.records.iter().map(|record| format!("{} ({}) {}", record.state, record.native, record.message)).collect();
    let blame = blame(diagnostics, &failure);
    let error = DatabaseError::new(failure, detail, scrub.clean(&words.join("; "))).blame(blame);
    if state.len() == 5 { error.sqlstate(state) } else { error }
}

/// Whether the connection is of no more use after this.
pub(crate) fn ends_connection(failure: &Failure) -> bool {
    matches!(failure, Failure::Unreachable | Failure::LinkLost | Failure::Unfit)
}

/// Whether the statement is gone from the database: never sent, or ended by the database's own word, not only by the driver's that it
/// waits no more.
pub(crate) fn proves_end(diagnostics: &Diagnostics) -> bool {
    // SQL0952N is Db2's "processing was cancelled due to an interrupt".
    diagnostics.mentions(NOT_SENT)
        || diagnostics.has_state("57014")
        || diagnostics.mentions("SQL0952N")
        || diagnostics.records.iter().any(|record| record.native == -952)
}

fn login_refused(diagnostics: &Diagnostics) -> bool {
    diagnostics.has_state("28000") || diagnostics.has_state("28P01") || diagnostics.mentions("SQL30082N")
}

fn classify(diagnostics: &Diagnostics, during: While) -> Failure {
    let state = diagnostics.state();
    let class = state.get(..2).unwrap_or("");
    match state {
        // The driver itself is missing or too old.
        "IM002" | "IM003" | "IM004" | "IM005" | "01000" if during == While::Connecting => Failure::Unfit,
        "40001" | "40P01" | "40XL1" | "40XL2" | "55P03" | "57033" | "57030" | "53300" => Failure::Passing,
        // "Statement completion unknown", and DRDA's broken conversations.
        "40003" | "58004" | "58009" | "HYT01" => link(during),
        "57014" | "HY008" | "HYT00" | "S1T00" if during == While::Running => Failure::Ended,
        // SQL7008: a table that is not journaled.
        "55019" => Failure::NoTransactions,
        _ if class == "08" => link(during),
        _ if during == While::Connecting => Failure::Unreachable,
        _ if diagnostics.mentions("SQL30081N") || diagnostics.has_state("08S01") => Failure::LinkLost,
        _ => Failure::Refused,
    }
}

fn blame(diagnostics: &Diagnostics, failure: &Failure) -> Blame {
    let state = diagnostics.state();
    match (failure, state) {
        // Rolled back for a deadlock or a serialization; Db2 says reason 68 of SQL0911N where it was a lock that it waited for.
        (Failure::Passing, "40001" | "40P01") if !waited_for_lock(diagnostics) => Blame::Statement,
        (Failure::Passing, _) => Blame::Others,
        (Failure::NoTransactions, _) => Blame::Schema,
        (Failure::Refused, "25006") => Blame::Schema,
        (Failure::Refused, _) if matches!(state.get(..2), Some("42" | "3D" | "3F" | "S0")) => Blame::Schema,
        _ => Blame::Statement,
    }
}

fn waited_for_lock(diagnostics: &Diagnostics) -> bool {
    diagnostics.mentions("SQL0911N") && diagnostics.mentions("\"68\"")
}

fn link(during: While) -> Failure {
    match during {
        While::Connecting => Failure::Unreachable,
        While::Running => Failure::LinkLost,
    }
}

/// One sentence by class of SQLSTATE; the database's own words would tell names and statement text.
fn refusal(state: &str) -> &'static str {
    match state.get(..2).unwrap_or("") {
        "22" => "the database refused a value: too long, out of range or of the wrong form",
        "23" => "a constraint of the database refuses this: a duplicate, missing or still used key, or a rule",
        "25" => "the database refuses this in its current transaction, which may be read-only",
        "42" if state == "42501" || state == "42502" || state == "42551" => "the database user may not do this",
        "42" => "the database does not accept the statement: a name, a type or its grammar",
        _ => "the database refused the statement",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_say_what_the_engine_must_do() {
        use Failure::*;
        let cases = [
            ("40001", "", Passing, Passing),
            ("57033", "", Passing, Passing),
            ("08001", "SQL30081N", Unreachable, LinkLost),
            ("08S01", "", Unreachable, LinkLost),
            ("28000", "", Unreachable, Refused),
            ("57014", "", Unreachable, Ended),
            ("HYT00", "", Unreachable, Ended),
            ("55019", "", NoTransactions, NoTransactions),
            ("42S02", "", Unreachable, Refused),
            ("IM002", "", Unfit, Refused),
        ];
        for (state, words, connecting, running) in cases {
            let diagnostics = Diagnostics::own(state, words);
            assert_eq!(classify(&diagnostics, While::Connecting), connecting, "{state}");
            assert_eq!(classify(&diagnostics, While::Running), running, "{state}");
        }
    }

    #[test]
    fn c10_the_drivers_words_stay_in_the_log_without_the_secret() {
        let scrub = Scrub::of_connection("Driver=x;UID=app;PWD=hunter2-hunter2;");
        let error = failure(&Diagnostics::own("08001", "cannot log in with PWD=hunter2-hunter2"), While::Connecting, &scrub);
        assert!(!error.detail.contains("hunter2") && !error.internal.contains("hunter2-hunter2"), "{error:?}");
    }
}
