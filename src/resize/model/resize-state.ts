/** The states that the metric of KEP-1287 counts. In steady state, Proposed = Infeasible + Completed + Canceled. */
export type ResizeState = 'Proposed' | 'InProgress' | 'Deferred' | 'Infeasible' | 'Completed' | 'Canceled';
