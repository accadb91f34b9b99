/** How many cases a property is tried on: as many as it says, or as few as a mutation run can afford. */
export const cases = (numRuns: number): { readonly numRuns: number } => ({
  numRuns: Math.min(numRuns, Number(process.env['CRI_RESIZE_SHIM_PROPERTY_CASES'] ?? Infinity)),
});
