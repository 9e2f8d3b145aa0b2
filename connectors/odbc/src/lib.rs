//! spillgate-odbc
