/** Admission: what a resize may not do, checked before anything changes. */
export { assertNodeHas } from './capacity.ts';
export { assertReclaimable, blockingUse } from './memory-in-use.ts';
export { fieldsSet, invalid, touchesLimits, parseLimits } from './parse-limits.ts';
export { assertRequestsFit } from './request-order.ts';
export { assertId, validateResources, validateOverhead, withSubject } from './validate.ts';
