import fc from 'fast-check';

/** Fixes the seed of random cases for npm run nightly -- --only mutation, so that each run has the same survivors. */
fc.configureGlobal({ seed: 2026 });
