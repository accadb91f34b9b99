/**
 * Returns the number of cases of a property: as specified, or reduced in a mutation run. The planner's properties have
 * thousands of cases, but a mutant is detected within tens of cases or never, and each run uses other cases.
 */
export const cases = (numRuns: number): { readonly numRuns: number } => ({
  numRuns: Math.min(numRuns, Number(process.env['CRI_RESIZE_SHIM_PROPERTY_CASES'] ?? Infinity)),
});
