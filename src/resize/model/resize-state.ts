/** As KEP-1287's metric counts them; in steady state Proposed = Infeasible + Completed + Canceled, all time. */
export type ResizeState = 'Proposed' | 'InProgress' | 'Deferred' | 'Infeasible' | 'Completed' | 'Canceled';
