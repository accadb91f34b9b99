/** The status page. */
export { NodePage, failureSection } from './page.ts';
export type { PageParts, PageQuery, Sections } from './page.ts';
