/** The status page. */
export { failureSection, pageAnswer, sectionsOf } from './page.ts';
export type { PageParts, PageQuery, Sections } from './page.ts';
