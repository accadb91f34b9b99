/** Keeps two processes from changing the installation of a node at the same time. */
export { takeInstallLock } from './install-lock.ts';
