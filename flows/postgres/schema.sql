-- A small fleet for the Postgres example: 200 trucks, 1,000 trips. Run it once, in a database of its own.

BEGIN;

CREATE SCHEMA fleet;
SET LOCAL search_path TO fleet;

CREATE TABLE truck (
    id      bigint PRIMARY KEY,
    company text NOT NULL,
    plate   text NOT NULL UNIQUE
);

CREATE TABLE truck_position (
    truck_id bigint NOT NULL REFERENCES truck (id),
    seen     timestamptz NOT NULL,
    lat      numeric(8, 5) NOT NULL,
    lon      numeric(8, 5) NOT NULL,
    PRIMARY KEY (truck_id, seen)
);

CREATE TABLE trip (
    id          bigint PRIMARY KEY,
    company     text NOT NULL,
    truck_id    bigint NOT NULL REFERENCES truck (id),
    status      text NOT NULL CHECK (status IN ('planned', 'under_way', 'delivered', 'cancelled')),
    destination text NOT NULL,
    departs     timestamp NOT NULL,
    price       numeric(12, 2) NOT NULL
);
CREATE INDEX trip_by_company ON trip (company, id);

CREATE TABLE booking (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    company   text NOT NULL,
    trip_id   bigint NOT NULL REFERENCES trip (id),
    reference text NOT NULL,
    pallets   integer NOT NULL CHECK (pallets BETWEEN 1 AND 33),
    booked_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (company, reference)
);

-- Which work was done (`record` of book_trip; `spillgate check` prints this statement).
CREATE TABLE spillgate_done (
    tenant          text NOT NULL,
    flow            text NOT NULL,
    idempotency_key text NOT NULL,
    job             text NOT NULL,
    done_at         timestamptz NOT NULL,
    PRIMARY KEY (tenant, flow, idempotency_key)
);

INSERT INTO truck
SELECT i, CASE WHEN i <= 160 THEN 'ACME' ELSE 'BOREAL' END, 'PG-' || lpad(i::text, 4, '0') FROM generate_series(1, 200) AS i;

INSERT INTO truck_position
SELECT i, timestamptz '2026-11-01 10:00:00+00' - age * interval '15 minutes',
       42 + i * 13 % 12 + (i * 7477 + age * 911) % 100000 / 100000.0,
       1 + i * 17 % 18 + (i * 6151 + age * 1303) % 100000 / 100000.0
FROM generate_series(1, 200) AS i, generate_series(0, 9) AS age;

INSERT INTO trip
SELECT i, CASE WHEN (i - 1) % 200 < 160 THEN 'ACME' ELSE 'BOREAL' END, (i - 1) % 200 + 1,
       (ARRAY['planned', 'under_way', 'delivered', 'planned', 'cancelled'])[i % 5 + 1],
       (ARRAY['Lyon', 'Genève', 'München', 'Milano'])[i % 4 + 1],
       timestamp '2026-11-01 05:00:00' + i * interval '7 minutes',
       120 + i * 193 % 388000 / 100.0
FROM generate_series(1, 1000) AS i;

COMMIT;
