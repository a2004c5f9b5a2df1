-- Questions that the judge could not decide are counted apart from those that failed. Stores from before this column have
-- none of them.
ALTER TABLE rollup ADD COLUMN abstained INTEGER NOT NULL DEFAULT 0;
ALTER TABLE rollup_long ADD COLUMN abstained INTEGER NOT NULL DEFAULT 0;
