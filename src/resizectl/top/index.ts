/** `resizectl top`: pods and containers by pressure. */
export { top } from './top.ts';
export type { TopOptions } from './top.ts';
