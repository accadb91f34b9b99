export { actions } from './actions.ts';
export type { CommandOptions, Context } from './context.ts';
