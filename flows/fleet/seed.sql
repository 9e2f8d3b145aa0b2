-- 8 depots, 120 customers, 1,000 trucks, 5,000 trips, 20,000 positions, 400 bookings: the same at every run.
-- To be run in one transaction after schema.sql. Trucks 1 to 800 belong to ACME, 801 to 1,000 to BOREAL. Every tenth truck is in the workshop.

INSERT INTO DEPOT (ID, CODE, CITY, LAT, LON) VALUES
    (1, 'LYS', 'Lyon',      '45.76404', '4.83566'),
    (2, 'GVA', 'Genève',    '46.20439', '6.14316'),
    (3, 'MUC', 'München',   '48.13743', '11.57549'),
    (4, 'MIL', 'Milano',    '45.46427', '9.18951'),
    (5, 'BCN', 'Barcelona', '41.38879', '2.15899'),
    (6, 'LGG', 'Liège',     '50.63373', '5.56749'),
    (7, 'RTM', 'Rotterdam', '51.92250', '4.47917'),
    (8, 'GDN', 'Gdańsk',    '54.35205', '18.64637');

INSERT INTO CUSTOMER (ID, COMPANY, NAME, CITY)
WITH RECURSIVE N (I) AS (SELECT 1 UNION ALL SELECT I + 1 FROM N WHERE I < 120)
SELECT I,
       CASE WHEN I <= 96 THEN 'ACME' ELSE 'BOREAL' END,
       CASE I % 6 WHEN 0 THEN 'Möbel' WHEN 1 THEN 'Harbour' WHEN 2 THEN 'Alpine' WHEN 3 THEN 'Northern' WHEN 4 THEN 'Rhône' ELSE 'Castle' END
           || ' ' || CASE (I / 6) % 4 WHEN 0 THEN 'Foods' WHEN 1 THEN 'Paper' WHEN 2 THEN 'Tools' ELSE 'Glass' END
           || ' ' || I,
       (SELECT CITY FROM DEPOT WHERE ID = I % 8 + 1)
FROM N;

INSERT INTO TRUCK (ID, COMPANY, PLATE, MODEL, CAPACITY_KG, ODOMETER_KM, IN_SERVICE, NEXT_SERVICE, DEPOT_ID)
WITH RECURSIVE N (I) AS (SELECT 1 UNION ALL SELECT I + 1 FROM N WHERE I < 1000)
SELECT I,
       CASE WHEN I <= 800 THEN 'ACME' ELSE 'BOREAL' END,
       char(65 + I % 26, 65 + I / 26 % 26) || printf('-%03d-', I) || char(65 + I * 7 % 26, 65 + I * 11 % 26),
       CASE I % 4 WHEN 0 THEN 'Box 12t' WHEN 1 THEN 'Tractor 18t' WHEN 2 THEN 'Cooled 18t' ELSE 'Tipper 26t' END,
       CASE I % 4 WHEN 0 THEN 6200 WHEN 1 THEN 24500 WHEN 2 THEN 21800 ELSE 15400 END,
       printf('%d.%d', 12000 + I * 7919 % 680000, I % 10),
       I % 10 <> 0,
       CASE WHEN I % 7 = 0 THEN NULL ELSE date('2026-12-01', '+' || (I * 37 % 240) || ' days') END,
       I % 8 + 1
FROM N;

-- Twenty sightings a truck, a quarter of an hour apart, the last at 10:00 on 1 November 2026.
INSERT INTO TRUCK_POSITION (TRUCK_ID, SEEN, LAT, LON, SPEED_KMH)
WITH RECURSIVE N (I) AS (SELECT 0 UNION ALL SELECT I + 1 FROM N WHERE I < 19999),
     P (TRUCK_ID, AGE) AS (SELECT I / 20 + 1, 19 - I % 20 FROM N)
SELECT P.TRUCK_ID,
       strftime('%Y-%m-%dT%H:%M:%S', '2026-11-01 10:00:00', '-' || (P.AGE * 15) || ' minutes'),
       printf('%d.%05d', 42 + P.TRUCK_ID * 13 % 12, (P.TRUCK_ID * 7477 + P.AGE * 911) % 100000),
       printf('%d.%05d', 1 + P.TRUCK_ID * 17 % 18, (P.TRUCK_ID * 6151 + P.AGE * 1303) % 100000),
       CASE WHEN P.TRUCK_ID % 10 = 0 THEN 0 ELSE (P.TRUCK_ID * 31 + P.AGE * 17) % 90 END
FROM P;

-- Five trips a truck. The first of each truck in service is under way for two trucks out of three.
INSERT INTO TRIP (ID, COMPANY, TRUCK_ID, CUSTOMER_ID, STATUS, ORIGIN, DESTINATION, DEPARTS, DISTANCE_KM, PRICE, NOTE)
WITH RECURSIVE N (I) AS (SELECT 1 UNION ALL SELECT I + 1 FROM N WHERE I < 5000),
     T (I, TRUCK_ID, TURN) AS (SELECT I, (I - 1) % 1000 + 1, (I - 1) / 1000 FROM N)
SELECT T.I,
       CASE WHEN T.TRUCK_ID <= 800 THEN 'ACME' ELSE 'BOREAL' END,
       T.TRUCK_ID,
       CASE WHEN T.TRUCK_ID <= 800 THEN T.I * 7 % 96 + 1 ELSE T.I * 7 % 24 + 97 END,
       CASE
           WHEN T.TURN = 0 AND T.TRUCK_ID % 10 <> 0 AND T.TRUCK_ID % 3 <> 0 THEN 'under_way'
           WHEN T.TURN <= 1 THEN 'delivered'
           WHEN T.I % 23 = 0 THEN 'cancelled'
           ELSE 'planned'
       END,
       (SELECT CITY FROM DEPOT WHERE ID = T.I % 8 + 1),
       (SELECT CITY FROM DEPOT WHERE ID = (T.I + 1 + T.I / 8 % 7) % 8 + 1),
       strftime('%Y-%m-%dT%H:%M:%S',
                CASE T.TURN WHEN 0 THEN '2026-11-01 05:00:00' WHEN 1 THEN '2026-10-28 05:00:00' ELSE '2026-11-02 05:00:00' END,
                '+' || (CASE WHEN T.TURN > 1 THEN T.TURN - 2 ELSE 0 END) || ' days',
                '+' || (T.I * 11 % 240) || ' minutes'),
       printf('%d.%02d', 40 + T.I * 97 % 1460, T.I * 29 % 100),
       printf('%d.%02d', 120 + T.I * 193 % 3880, T.I * 41 % 100),
       CASE WHEN T.I % 9 = 0 THEN 'Tail lift needed' END
FROM T;

INSERT INTO BOOKING (ID, COMPANY, TRIP_ID, REFERENCE, PALLETS, BOOKED_AT)
WITH RECURSIVE N (I) AS (SELECT 1 UNION ALL SELECT I + 1 FROM N WHERE I < 400)
SELECT I,
       TRIP.COMPANY,
       TRIP.ID,
       printf('%s-2026-%05d', TRIP.COMPANY, I),
       1 + I % 33,
       strftime('%Y-%m-%dT%H:%M:%S', '2026-10-20 08:00:00', '+' || (I * 13) || ' minutes')
FROM N JOIN TRIP ON TRIP.ID = 2000 + I * 5;
