//! IBM's own Db2 driver over Apache Derby: the conformance suite, and what is particular to this driver.
//!
//! `.cargo/config.toml` sets for tests what `spillgate_odbc::prepare_process` sets for the server.

mod endings;
mod fixture;
mod indicators;
mod links;
mod statements;

// Left out, and told in `endings` instead: the promises on ending. This driver ends a statement by dropping its link; what Derby does with
// it then is Derby's affair, and the connector says so.
spillgate_connector::conformance_suite! { @each fixture::Db2::new:
    c1_integers_are_exact,
    b1_decimals_keep_every_digit,
    text_that_looks_like_a_number_stays_text,
    null_and_empty_text_are_two_things,
    text_is_kept_whole,
    text_with_a_nul_is_never_cut,
    binary_is_byte_exact,
    booleans_are_booleans,
    numbers_are_exact_doubles,
    c6_zone_less_times_are_not_shifted,
    every_value_is_bound_exactly,
    columns_convert_exactly_or_fail,
    b10_column_names_are_kept,
    c5_row_limit_says_whether_more_was_there,
    c5_row_limit_on_five_million_rows_is_flat_and_frees_the_session,
    byte_limit_cuts_at_a_row,
    one_value_too_large_is_named,
    no_rows_still_have_columns,
    commit_is_seen_by_others,
    rollback_leaves_nothing,
    read_only_session_refuses_writes,
    refused_statement_leaves_the_session_usable,
    b8_lost_link_is_a_failure,
    c10_closed_port_is_unreachable_and_tells_no_secret,
}
