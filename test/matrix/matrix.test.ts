import { matrixCases } from './cases.ts';
import { defineMatrix } from './define.ts';

// The suite `matrix` runs all cases in all ways.
defineMatrix(matrixCases);
