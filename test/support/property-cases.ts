/** The number of cases of a property: as specified, or reduced in a mutation run. */
export const cases = (numRuns: number): { readonly numRuns: number } => ({
  numRuns: Math.min(numRuns, Number(process.env['CRI_RESIZE_SHIM_PROPERTY_CASES'] ?? Infinity)),
});
