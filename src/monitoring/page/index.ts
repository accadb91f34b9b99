/** The status page. */
export { pageAnswer } from './page.ts';
