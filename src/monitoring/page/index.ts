/** The status page. */
export { NodePage, failureSection } from './page.ts';
export type { Sections } from './page.ts';
