// summary
