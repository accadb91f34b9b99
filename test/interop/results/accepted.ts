/**
 * Cases that pass directly and may fail through the shim, with the reason. docs/compatibility.md lists them too, in a
 * table. All other differences fail the suite `interop`.
 */
export const accepted: ReadonlyMap<string, string> = new Map();
