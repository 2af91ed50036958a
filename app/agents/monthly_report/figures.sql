-- The questions figures.py asks of monthly_report.daily_figures, always of one data set. Sums are whole numbers and
-- counts of rows are told with them; shares and averages are worked out from them in figures.py and nowhere else.
-- Parameters: data_set (text), first and next_first (dates: the month is first <= date < next_first), months (how many
-- earlier months there are), limit (rows per measure).

-- name: months
-- One row per month of the data set, the oldest first.
select to_char(date, 'YYYY-MM')                  as month,
       count(*)                                  as rows,
       count(distinct date)                      as days,
       cast(sum(flights) as bigint)              as flights,
       cast(sum(cancelled) as bigint)            as cancelled,
       cast(sum(delayed_departures) as bigint)   as delayed_departures,
       cast(sum(departure_delay_min) as bigint)  as departure_delay_min,
       cast(sum(arrivals) as bigint)             as arrivals,
       cast(sum(late_arrivals) as bigint)        as late_arrivals
  from monthly_report.daily_figures
 where data_set = :data_set
 group by 1
 order by 1;

-- name: groups
-- Per airport and per airline up to two rows: the month itself, and all earlier months together.
select g.kind, g.code,
       max(g.name collate "C")                   as name,
       f.date >= :first                          as in_month,
       count(*)                                  as rows,
       count(distinct f.date)                    as days,
       cast(sum(f.flights) as bigint)            as flights,
       cast(sum(f.cancelled) as bigint)          as cancelled,
       cast(sum(f.delayed_departures) as bigint) as delayed_departures,
       cast(sum(f.departure_delay_min) as bigint) as departure_delay_min,
       cast(sum(f.arrivals) as bigint)           as arrivals,
       cast(sum(f.late_arrivals) as bigint)      as late_arrivals
  from monthly_report.daily_figures f
 cross join lateral (values ('airport', f.origin, f.origin), ('airline', f.carrier, f.airline)) g (kind, code, name)
 where f.data_set = :data_set and f.date < :next_first
 group by 1, 2, 4
 order by g.kind, g.code collate "C", in_month;

-- name: movers
-- Per measure the airport and airline pairs whose count moved farthest from their average of the earlier months. With
-- n earlier months the move is in_month - earlier / n; n times that is a whole number, so the order is exact.
with pairs as (
    select f.origin, f.carrier, m.measure,
           max(f.airline collate "C")                                as airline,
           count(*)                              as rows,
           coalesce(sum(m.value) filter (where f.date >= :first), 0) as in_month,
           coalesce(sum(m.value) filter (where f.date < :first), 0)  as earlier
      from monthly_report.daily_figures f
     cross join lateral (values ('flights', f.flights),
                                ('cancelled', f.cancelled),
                                ('delayed_departures', f.delayed_departures),
                                ('late_arrivals', f.late_arrivals)) m (measure, value)
     where f.data_set = :data_set and f.date < :next_first
     group by f.origin, f.carrier, m.measure
), ranked as (
    select pairs.*,
           row_number() over (partition by measure
                              order by abs(in_month * :months - earlier) desc, origin collate "C", carrier collate "C") as rank
      from pairs
     where in_month * :months <> earlier
)
select measure, cast(rank as int) as rank, origin, carrier, airline, rows,
       cast(in_month as bigint) as in_month, cast(earlier as bigint) as earlier
  from ranked
 where rank <= :limit
 order by case measure when 'flights' then 1 when 'cancelled' then 2 when 'delayed_departures' then 3 else 4 end, rank;

-- name: days
-- One row per day of the month.
select to_char(date, 'YYYY-MM-DD')               as day,
       count(*)                                  as rows,
       count(distinct date)                      as days,
       cast(sum(flights) as bigint)              as flights,
       cast(sum(cancelled) as bigint)            as cancelled,
       cast(sum(delayed_departures) as bigint)   as delayed_departures,
       cast(sum(departure_delay_min) as bigint)  as departure_delay_min,
       cast(sum(arrivals) as bigint)             as arrivals,
       cast(sum(late_arrivals) as bigint)        as late_arrivals
  from monthly_report.daily_figures
 where data_set = :data_set and date >= :first and date < :next_first
 group by date
 order by date;
