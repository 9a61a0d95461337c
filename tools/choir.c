#include <choir/choir.h>
#include <stdio.h>
int main(void){puts(choir_version());return 0;}
