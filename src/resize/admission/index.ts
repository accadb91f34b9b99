export { assertNodeHas } from './capacity.ts';
export { assertNotUnderUse, forbiddingUse } from './memory-in-use.ts';
export { fieldsSet, invalid, touchesLimits, wantedLimits } from './parse-limits.ts';
export type { WantedLimits } from './parse-limits.ts';
export { assertRequestsFit } from './request-order.ts';
export { assertId, assertMeaning, assertOverheadMeaning, saying } from './validate.ts';
