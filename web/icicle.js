// icicle
