/* An ODBC driver that knows three statements and one thing to watch: no handle is used by two threads at once. It ends the
   process where that happens. A cancel is the one call that another thread may make.

   VALUES n     the number n
   SLEEP        nothing comes until it is cancelled
   OVERLAPPED   the most connects that were under way at once
   (and what the connector asks of every driver, which has `AS V` in it: four rows with texts) */

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef short Return;
typedef void *Pointer;
enum { DONE = 0, FAILED = -1, NOTHING = 100, TEXT_WIDE = -8 };
enum { ROW_STATUS_PTR = 25, ROWS_FETCHED_PTR = 26, ROW_ARRAY_SIZE = 27 };

struct column { short type; char *values; long width; long *lengths; };
typedef struct {
    atomic_int used, cancelled;
    char text[1024];
    int columns, rows, row;
    long number;
    struct column bound[2];
    unsigned long array_size, *fetched;
    unsigned short *statuses;
} Handle;

static atomic_int connecting, overlapped;

static Handle *enter(Pointer handle) {
    Handle *entered = handle;
    if (atomic_exchange(&entered->used, 1)) {
        fprintf(stderr, "two threads use one handle\n");
        abort();
    }
    return entered;
}
static Return leave(Handle *handle, Return returned) {
    atomic_store(&handle->used, 0);
    return returned;
}
static void nap(long millis) {
    struct timespec time = { millis / 1000, millis % 1000 * 1000000 };
    nanosleep(&time, NULL);
}

Return SQLAllocHandle(short kind, Pointer parent, Pointer *made) {
    (void)kind; (void)parent;
    Handle *handle = calloc(1, sizeof *handle);
    handle->array_size = 1;
    *made = handle;
    return DONE;
}
Return SQLFreeHandle(short kind, Pointer handle) {
    (void)kind;
    free(enter(handle));
    return DONE;
}
Return SQLSetEnvAttr(Pointer h, int a, Pointer v, int l) { (void)a; (void)v; (void)l; return leave(enter(h), DONE); }
Return SQLSetConnectAttr(Pointer h, int a, Pointer v, int l) { (void)a; (void)v; (void)l; return leave(enter(h), DONE); }
Return SQLGetConnectAttr(Pointer h, int a, Pointer v, int l, int *n) { (void)a; (void)v; (void)l; (void)n; return leave(enter(h), FAILED); }
Return SQLGetInfo(Pointer h, unsigned short i, Pointer v, short l, short *n) { (void)i; (void)v; (void)l; (void)n; return leave(enter(h), FAILED); }
Return SQLEndTran(short kind, Pointer h, short how) { (void)kind; (void)how; return leave(enter(h), DONE); }
Return SQLDisconnect(Pointer h) { return leave(enter(h), DONE); }
Return SQLDriverConnect(Pointer h, Pointer window, char *in, short in_length, char *out, short size, short *length, unsigned short ask) {
    (void)window; (void)in; (void)in_length; (void)ask;
    Handle *connection = enter(h);
    int now = atomic_fetch_add(&connecting, 1) + 1, most = atomic_load(&overlapped);
    while (now > most && !atomic_compare_exchange_weak(&overlapped, &most, now)) { }
    nap(100);
    atomic_fetch_sub(&connecting, 1);
    if (out && size > 0) *out = 0;
    if (length) *length = 0;
    return leave(connection, DONE);
}
Return SQLGetDiagRec(short kind, Pointer h, short number, char *state, int *native, char *message, short size, short *length) {
    (void)kind; (void)h;
    if (number > 1) return NOTHING;
    strcpy(state, "HY008");
    if (native) *native = 0;
    if (message && size > 0) *message = 0;
    if (length) *length = 0;
    return DONE;
}

Return SQLSetStmtAttr(Pointer h, int attribute, Pointer value, int length) {
    (void)length;
    Handle *statement = enter(h);
    if (attribute == ROW_ARRAY_SIZE) statement->array_size = (unsigned long)value;
    if (attribute == ROWS_FETCHED_PTR) statement->fetched = value;
    if (attribute == ROW_STATUS_PTR) statement->statuses = value;
    return leave(statement, DONE);
}
Return SQLPrepare(Pointer h, char *text, int length) {
    Handle *statement = enter(h);
    size_t bytes = length < 0 ? strlen(text) : (size_t)length;
    if (bytes >= sizeof statement->text) bytes = sizeof statement->text - 1;
    memcpy(statement->text, text, bytes);
    statement->text[bytes] = 0;
    int texts = strstr(statement->text, "AS V") != NULL;
    statement->columns = texts ? 2 : 1;
    statement->rows = texts ? 4 : 1;
    return leave(statement, DONE);
}
Return SQLExecute(Pointer h) {
    Handle *statement = enter(h);
    statement->row = 0;
    if (!strncmp(statement->text, "VALUES ", 7)) statement->number = atol(statement->text + 7);
    if (!strcmp(statement->text, "OVERLAPPED")) statement->number = atomic_load(&overlapped);
    if (!strcmp(statement->text, "SLEEP")) {
        while (!atomic_load(&statement->cancelled)) nap(1);
        return leave(statement, FAILED);
    }
    nap(1);
    return leave(statement, DONE);
}
Return SQLExecDirect(Pointer h, char *text, int length) {
    Return prepared = SQLPrepare(h, text, length);
    return prepared == DONE ? SQLExecute(h) : prepared;
}
Return SQLCancel(Pointer h) {
    atomic_store(&((Handle *)h)->cancelled, 1);
    return DONE;
}
Return SQLNumResultCols(Pointer h, short *count) {
    Handle *statement = enter(h);
    *count = (short)statement->columns;
    return leave(statement, DONE);
}
Return SQLDescribeCol(Pointer h, unsigned short number, char *name, short size, short *length, short *type, unsigned long *width, short *digits, short *nullable) {
    (void)number; (void)size;
    Handle *statement = enter(h);
    if (name) strcpy(name, "N");
    if (length) *length = 1;
    if (type) *type = -5;
    if (width) *width = 19;
    if (digits) *digits = 0;
    if (nullable) *nullable = 0;
    return leave(statement, DONE);
}
Return SQLBindCol(Pointer h, unsigned short number, short type, Pointer values, long width, long *lengths) {
    Handle *statement = enter(h);
    if (number < 1 || number > 2) return leave(statement, FAILED);
    statement->bound[number - 1] = (struct column){ type, values, width, lengths };
    return leave(statement, DONE);
}
static void put(Handle *statement, struct column *column, unsigned long row) {
    static const char *texts[] = { "one", "three", "", NULL };
    char *value = column->values + row * (unsigned long)column->width;
    if (column->type != TEXT_WIDE) {
        long number = statement->columns == 2 ? (long)row + 1 : statement->number;
        memcpy(value, &number, sizeof number);
        column->lengths[row] = sizeof number;
        return;
    }
    const char *text = texts[row % 4];
    column->lengths[row] = text ? (long)strlen(text) * 2 : -1;
    for (size_t at = 0; text && at <= strlen(text); at++) ((unsigned short *)value)[at] = (unsigned short)text[at];
}
Return SQLFetch(Pointer h) {
    Handle *statement = enter(h);
    unsigned long given = 0;
    for (; given < statement->array_size && statement->row < statement->rows; given++, statement->row++) {
        for (int column = 0; column < statement->columns; column++)
            if (statement->bound[column].values) put(statement, &statement->bound[column], given);
        if (statement->statuses) statement->statuses[given] = 0;
    }
    if (statement->fetched) *statement->fetched = given;
    return leave(statement, given ? DONE : NOTHING);
}
Return SQLFreeStmt(Pointer h, unsigned short how) {
    Handle *statement = enter(h);
    if (how == 2) memset(statement->bound, 0, sizeof statement->bound);
    return leave(statement, DONE);
}
Return SQLRowCount(Pointer h, long *count) {
    *count = -1;
    return leave(enter(h), DONE);
}
