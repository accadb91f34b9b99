import fc from 'fast-check';

/**
 * Fixes the seed of random cases if the environment sets one. `npm test` and the suite `mutation` use the same cases in
 * each run. All other runs use new cases.
 */
const seed = process.env['CRI_RESIZE_SHIM_PROPERTY_SEED'];
if (seed !== undefined) fc.configureGlobal({ seed: Number(seed) });
