/** What the units of the shim grant it on this machine. */
export { unitPlaces } from './unit-places.ts';
