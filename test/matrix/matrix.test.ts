import { matrixCases } from './cases.ts';
import { defineMatrix } from './define.ts';

// All cases in all ways: `npm run matrix`.
defineMatrix(matrixCases);
