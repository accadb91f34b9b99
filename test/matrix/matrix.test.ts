import { matrixCases } from './cases.ts';
import { defineMatrix } from './define.ts';

// `npm run matrix` runs all cases in all ways.
defineMatrix(matrixCases);
