/**
 * Specs that pass directly and may fail through the shim, with the reason. docs/compatibility.md lists them too. All
 * other differences fail the suite `k8s-e2e`.
 */
export const accepted: ReadonlyMap<string, string> = new Map();
