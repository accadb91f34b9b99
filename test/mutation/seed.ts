import fc from 'fast-check';

/** Under npm run mutation the random cases are the same each time, so that what survives does not change from run to run. */
fc.configureGlobal({ seed: 2026 });
