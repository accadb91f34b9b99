export { pageAnswer } from './page.ts';
