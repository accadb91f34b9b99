/** Admission: what a resize may not do, checked before anything changes. */
export { assertNodeHas } from './capacity.ts';
export { assertResizable } from './container-kind.ts';
export { assertReclaimable, blockingUse } from './memory-in-use.ts';
export { addOverhead } from './overhead.ts';
export { fieldsSet, invalid, touchesCpu, touchesLimits, touchesMemory, parseLimits } from './parse-limits.ts';
export { assertRequestsFit } from './request-order.ts';
export { assertId, validatePodRequest, validateResources, withSubject } from './validate.ts';
