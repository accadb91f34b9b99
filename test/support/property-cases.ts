/**
 * The number of cases of a property: as specified, or reduced in a mutation run. Those of the planner have thousands: a
 * mutant of it dies within tens of cases or not at all, and each run takes other ones.
 */
export const cases = (numRuns: number): { readonly numRuns: number } => ({
  numRuns: Math.min(numRuns, Number(process.env['CRI_RESIZE_SHIM_PROPERTY_CASES'] ?? Infinity)),
});
