-- Retention goes by when the first record of a trace arrived, by the server's clock: what a sender says about time decides
-- nothing. Traces from before this column count from when something of them came last, which is what is known of them.
ALTER TABLE trace ADD COLUMN first_arrived_ns INTEGER NOT NULL DEFAULT 0;
UPDATE trace SET first_arrived_ns = arrived_ns;
CREATE INDEX trace_by_arrival ON trace (first_arrived_ns);
