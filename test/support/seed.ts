import fc from 'fast-check';

/**
 * Fixes the seed of random cases if the environment has one: `npm test` has the same cases in each run, and so have the
 * runs of the suite `mutation`. All others have other cases in each run.
 */
const seed = process.env['CRI_RESIZE_SHIM_PROPERTY_SEED'];
if (seed !== undefined) fc.configureGlobal({ seed: Number(seed) });
