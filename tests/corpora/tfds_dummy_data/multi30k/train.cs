Pes běží po louce.
